"""`shoal export model`: a run's newest checkpoint as a model folder for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from shoal.nearby import folder_with
from shoal_base.extras import missing_for_trainer
from shoal_base.lines import say, say_json
from shoal_settings.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NO_NODE, EXIT_OK, fail
from shoal_settings.groups import choices_of
from shoal_settings.parser import Parser, data_dir_flag, path
from shoal_settings.schema import Settings

DESCRIPTION = """\
Write a node's newest good checkpoint as a Hugging Face model folder, LoRA adapters merged in
float32. `from_pretrained("DIR")`, vLLM and llama.cpp's converter read it. The node may be running.

  shoal export model --out my-model

Exit codes: 0 ok, 1 failed, 2 usage, 3 no checkpoint was there."""


def main(argv: Sequence[str]) -> int:
    """Run `shoal export model`; return the exit code."""
    parser = Parser(prog="shoal export model", description=DESCRIPTION)
    data_dir_flag(parser, "the node's folder (.shoal/node, or the one used last)")
    parser.add_argument(
        "--out", type=path, default=Path("model"), metavar="DIR", help="new folder (model)"
    )
    parser.add_argument(
        "--dtype",
        choices=choices_of("dtype"),
        default="auto",
        help="type in which the run held the weights: " + ", ".join(choices_of("dtype")),
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    arguments = parser.parse_args(argv)
    if (missing := missing_for_trainer()) is not None:
        return fail("export model", missing).code
    return _export(
        folder_with("checkpoints", arguments.data_dir),
        arguments.out,
        Settings(dtype=arguments.dtype),
        as_json=arguments.json,
    )


def _export(data_dir: Path, out: Path, settings: Settings, *, as_json: bool) -> int:
    """Write the model; return the exit code."""
    # Late: `--help` needs none of it.
    from shoal_policy.checkpoint.saved import CheckpointError, latest_checkpoint

    if out.exists():
        return fail("export model", f"{out} exists already; choose another --out").code
    try:
        found = latest_checkpoint(data_dir).path
    except OSError as error:
        return fail("export model", f"cannot read {data_dir} ({error.strerror})").code
    if found is None:
        why = f"no checkpoint in {data_dir}; name the --data-dir of a node that has trained"
        return fail("export model", why, EXIT_NO_NODE).code
    # Later still: torch takes seconds to import.
    from shoal_policy.checkpoint.export import export_model

    try:
        export_model(settings, found, out, partial(say, error=True))
    except CheckpointError as error:
        return fail("export model", str(error), EXIT_FAILED).code
    except KeyboardInterrupt:
        return fail("export model", "interrupted; nothing was written", EXIT_INTERRUPTED).code
    if as_json:
        say_json({"schema_version": 1, "checkpoint": found.name, "out": str(out)})
    else:
        say(f"exported {found.name} to {out}")
    return EXIT_OK
