"""`python -m shoal_lab.warmstart`: makes the embedded models, or checks them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from shoal_base.lines import say
from shoal_policy.tiny import ASSETS, Profile, assets_path

QUESTIONS_PER_FAMILY = 200
"""Held-out questions behind the figures in the provenance."""
SEEDS = 1 << 32
"""Bound of the seeds that every part of the recipe takes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make or check. Exit codes: 0 made or the same, 1 different, 2 usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    profiles = [Profile(options.profile)] if options.profile else list(Profile)
    if options.seed is not None and (options.check or options.out == ASSETS):
        parser.error("--seed makes other models than the shipped ones: say where with --out DIR")
    if options.seed is not None and not 0 <= options.seed < SEEDS:
        parser.error(f"--seed is 0 to {SEEDS - 1}")
    if not options.check:
        # Check before minutes of work, not after.
        try:
            for profile in profiles:
                (options.out / profile).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"--out {options.out}: {error.strerror}")
        _make(profiles, options.out, options.seed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        _make(profiles, Path(folder))
        return max([_compare(profile, Path(folder) / profile) for profile in profiles])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m shoal_lab.warmstart",
        description="Make shoal's embedded models: a supervised start on one core, about eight "
        "minutes. On one machine the result is the same to the byte, every time.",
    )
    parser.add_argument(
        "--profile",
        choices=[str(profile) for profile in Profile],
        help="make one model only: dense (`--model tiny`), sparse (`tiny-sparse`) or "
        "games (`tiny-games`)",
    )
    parser.add_argument(
        "--out", type=Path, default=ASSETS, metavar="DIR", help="write here, a folder a profile"
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="other first weights, lessons and order: another checkpoint of the same recipe",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="make into a temporary folder and compare with the shipped files",
    )
    return parser


def _make(profiles: Sequence[Profile], out: Path, seed: int | None = None) -> None:
    from shoal_lab.warmstart.building import MISLED, SEED, make, save
    from shoal_lab.warmstart.games import make_player
    from shoal_lab.warmstart.provenance import write_provenance
    from shoal_policy.model.loading import wrap_policy

    with _bar() as progress:
        bars: dict[str, TaskID] = {}

        def show(phase: str, step: int, steps: int, loss: float) -> None:
            if phase not in bars:
                bars[phase] = progress.add_task(phase, total=steps, loss=loss)
            progress.update(bars[phase], completed=step, loss=loss)

        first = SEED if seed is None else seed
        made: dict[Profile, tuple[Any, Any]] = {}
        if answering := [profile for profile in profiles if profile in MISLED]:
            made |= make(answering, show, first)
        if Profile.GAMES in profiles:
            made[Profile.GAMES] = make_player(show, first)
    for profile, (model, tokenizer) in made.items():
        save(model, tokenizer, out / profile)
        measured = _measured(profile, wrap_policy(model, tokenizer, name=profile))
        scores = ", ".join(f"{name} {shares['all']:.1%}" for name, shares in measured.items())
        by_seed = {} if seed is None else {"seed": seed}
        write_provenance(out / profile, profile=profile, measured={**measured, **by_seed})
        say(f"{profile}: {scores}; {out / profile}")


def _measured(profile: Profile, policy: Any) -> dict[str, dict[str, float]]:
    """Return the shares of right answers, or of games won, on held-out tasks."""
    from shoal_lab.warmstart.lessons import held_out_questions
    from shoal_lab.warmstart.measure import accuracy, games_won

    if profile is Profile.GAMES:
        sampled, greedy = (games_won(policy, QUESTIONS_PER_FAMILY, greedy=g) for g in (False, True))
        return {"start": _rounded(sampled), "greedy": _rounded(greedy)}
    questions = held_out_questions(QUESTIONS_PER_FAMILY)
    start, latent = (accuracy(policy, questions, marker=marker) for marker in (False, True))
    return {"start": _rounded(start), "latent": _rounded(latent)}


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:<16}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}  loss {task.fields[loss]:.3f}", markup=False),
        TimeRemainingColumn(),
    )


def _rounded(shares: dict[str, float]) -> dict[str, float]:
    return {family: round(share, 4) for family, share in shares.items()}


def _compare(profile: Profile, made: Path) -> int:
    from shoal_lab.warmstart.provenance import differing, environment_changes

    shipped = assets_path(profile)
    names = differing(made, shipped)
    if not names:
        say(f"{profile}: the same, byte for byte")
        return 0
    say(f"{profile}: differs in {', '.join(names)}")
    for line in environment_changes(shipped):
        say(f"  made elsewhere, which may be why: {line}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
