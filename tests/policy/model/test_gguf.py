"""GGUF files: converted once into a cache, whole or not at all, and then a model like any other."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from transformers import PreTrainedModel

pytest.importorskip("gguf", reason="the extra `smollm2` is not installed")

from shoal_base.node_folders import name_of
from shoal_policy.model import gguf as converting
from shoal_policy.model.loading import ModelError, PromptFormat, check_model, load_policy
from shoal_policy.model.prompting import encode_prompt
from shoal_policy.rollouts import public_model_name
from shoal_tasks.prompts import Example
from tests.policy.model.gguf_files import write_gguf
from tests.policy.tiny_models import refused


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shoal" / "models"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(path)
    return path


def folders(cache: Path) -> list[Path]:
    return sorted(path for path in cache.iterdir() if path.is_dir())


def no_conversion(*_args: Any) -> None:
    raise AssertionError("converted again")


def test_a_file_is_converted_once_and_loads_like_a_folder(
    made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_model(str(made))
    policy = load_policy(str(made), device="cpu")
    assert policy.name == str(made)
    assert policy.prompt_format is PromptFormat.CHAT and policy.linear_head
    assert policy.model.dtype == torch.float32
    assert policy.eos_ids == {2} and policy.max_positions == 512
    requested = encode_prompt(
        policy,
        "the 5?",
        examples=[Example(question="the 2?", answer="2"), Example(question="3", answer="4")],
    )
    assert policy.tokenizer.decode(requested) == (
        "<|im_start|>user\nthe 2?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>user\n3<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
        "<|im_start|>user\nthe 5?<|im_end|>\n<|im_start|>assistant\n"
    )
    [folder] = folders(cache)
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    monkeypatch.setattr(converting, "_convert", no_conversion)
    again = load_policy(str(made), device="cpu")
    for name, weight in again.model.state_dict().items():
        assert torch.equal(weight, policy.model.state_dict()[name]), name


def test_another_file_of_that_name_is_another_model(made: Path, cache: Path) -> None:
    copy = made.with_name("copy.gguf")
    write_gguf(copy)
    first = load_policy(str(copy), device="cpu")
    write_gguf(copy, seed=1)
    second = load_policy(str(copy), device="cpu")
    assert len(folders(cache)) == 2
    one, other = (p.model.get_input_embeddings().weight for p in (first, second))
    assert not torch.equal(one, other)


def test_leftovers_of_a_killed_conversion_are_converted_again(
    made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        patch.setattr(shutil, "rmtree", lambda *_args, **_options: None)
        with pytest.raises(KeyboardInterrupt):
            load_policy(str(made), device="cpu")
    [left] = folders(cache)
    assert ".tmp-" in left.name
    left.rename(left.with_name(f"{left.name}0"))  # of a process that is gone
    damaged = left.with_name(left.name.split(".tmp-")[0])
    damaged.mkdir()  # not whole: its weights are missing
    (damaged / "config.json").write_text("{}")
    load_policy(str(made), device="cpu")
    [whole] = folders(cache)
    assert whole == damaged


def test_of_those_that_start_together_one_converts(
    made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock holds between threads as between processes: each has opened the file for itself."""
    real, converted_folder = converting._convert, []

    def watched(*args: Any) -> None:
        converted_folder.append(args)
        real(*args)

    monkeypatch.setattr(converting, "_convert", watched)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(check_model, [str(made)] * 4))
    assert len(converted_folder) == len(folders(cache)) == 1


def test_what_is_missing_is_one_line_that_says_how_to_get_it(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    for model in ("smollm2", str(made)):
        with refused("pip install 'shoal[smollm2]'"):
            check_model(model)


def test_a_file_that_is_none_is_one_line(tmp_path: Path, cache: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(200))
    unknown = tmp_path / "unknown.gguf"
    write_gguf(unknown, architecture="no-such-thing")
    for path in (damaged, unknown):
        with refused(path.name):
            load_policy(str(path), device="cpu")
    with refused("no such file"):
        load_policy(str(tmp_path / "nowhere.gguf"), device="cpu")
    assert not folders(cache)


@pytest.mark.slow
def test_a_file_that_lacks_a_weight_is_refused_and_says_which(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "lacking.gguf"
    for number, name in enumerate(write_gguf(path)):
        path = tmp_path / f"{number}.gguf"
        write_gguf(path, without=name)
        with refused("lacks weights: ", path.name):
            load_policy(str(path), device="cpu")
    assert not folders(cache)


@pytest.mark.parametrize(
    ("key", "behind", "number", "message"),
    [
        # Of a list longer than the file the reader would read nothing, and that for ever.
        (b"tokenizer.ggml.token_type", 8, (1 << 40).to_bytes(8, "little"), "shorter than its"),
        (b"tokenizer.ggml.tokens", 8, (1 << 40).to_bytes(8, "little"), "shorter than its"),
        (b"llama.block_count", 4, (1 << 30).to_bytes(4, "little"), "1,073,741,824 layers"),
    ],
)
def test_a_number_that_cannot_be_is_one_line(
    made: Path, tmp_path: Path, cache: Path, key: bytes, behind: int, number: bytes, message: str
) -> None:
    content = bytearray(made.read_bytes())
    place = content.index(key) + len(key) + behind  # behind the kinds of the value, and of items
    content[place : place + len(number)] = number
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    with refused(message):
        check_model(str(path))
    assert not folders(cache)


KINDS_OF_DAMAGE = st.one_of(
    st.tuples(st.just("cut"), st.just(b"")),
    st.tuples(st.just("write"), st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("write"), st.sampled_from([b"\xff" * 8, (1 << 62).to_bytes(8, "little")])),
    st.tuples(st.just("leave out"), st.binary(min_size=1, max_size=40)),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(where=st.integers(0, 6000), damage=KINDS_OF_DAMAGE)
def test_a_damaged_file_is_one_line_or_a_model_that_is_in_the_file(
    made: Path, where: int, damage: tuple[str, bytes]
) -> None:
    """Of what is read, nothing is drawn by lot: another seed would give another model."""
    kind, other = damage
    whole, end = made.read_bytes(), where + len(other)
    parts = {
        "cut": whole[:where],
        "write": whole[:where] + other + whole[end:],
        "leave out": whole[:where] + whole[end:],
    }
    found: list[list[torch.Tensor]] = []
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        path = Path(name) / "damaged.gguf"
        path.write_bytes(parts[kind])
        for seed in (1, 2):
            patch.setenv("XDG_CACHE_HOME", f"{name}/{seed}")
            try:
                policy = load_policy(str(path), device="cpu", seed=seed)
            except ModelError as error:
                assert "\n" not in str(error)
                return
            found.append([weight.nan_to_num() for weight in policy.model.parameters()])
    assert all(map(torch.equal, *found))


def test_a_cache_that_cannot_be_written_is_one_line(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with refused("cannot convert small.gguf"):
        check_model(str(made))


def test_a_name_below_a_home_that_is_not_there_is_one_line() -> None:
    for model in ("~no-such-user/small.gguf", "~no-such-user/small"):
        with refused("no such f"):
            check_model(model)
        assert public_model_name(model) == model


def test_a_disk_that_is_full_is_one_line_whatever_a_library_makes_of_it(
    made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: Any, **_options: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", full)
    with refused("cannot convert small.gguf: ", ": no space left"):
        check_model(str(made))
    assert not folders(cache)


def test_peers_and_folders_see_only_its_name(made: Path) -> None:
    assert public_model_name(str(made)) == "small.gguf"
    assert name_of(str(made)).startswith("small.gguf-")
    assert name_of("smollm2") == "smollm2"
