"""What a shell completes of shoal's words, by the shells themselves if installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.__main__ import COMMANDS
from shoal.completion import SHELLS, script
from shoal.debug.views import VIEWS
from shoal_base.visible import visible_lines

BASH = """
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
at=$(complete -p shoal | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$at shoal "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=(${1:h} \$fpath); bindkey '^I' complete-word"
zpty -w shell 'autoload -Uz compinit; compinit -u -D'
zpty -w shell 'compadd() {
  [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]] && { builtin compadd "$@"; return }
  local -a hits; builtin compadd -A hits "$@"
  (( $#hits )) && print -rl -- "" "@@hit "$^hits
  builtin compadd "$@"
}'
zpty -w shell 'all() { print -r -- "@@""done"; exit }; zle -N all; bindkey "^X" all'
zpty -n -w shell "$2"$'\t\x18'
while zpty -r shell line; do
  print -rn -- "$line"
  [[ $line == *@@done* ]] && break
done
"""
FISH = 'source $argv[1]; complete -C "$argv[2]" | string replace -r "\\t.*" ""'
CASES = [
    ("", {"node", "judge", "completion"}),
    ("no", {"node"}),
    ("debug ", {*VIEWS} - {"status", "doctor"}),
    ("status --la", {"--last"}),
    ("node --publisher-sampling ", {"weighted", "uniform"}),
    ("node --no-mdns --tasks ", {"easy", "easy-paper", "paper", "none"}),
    ("join shoal1x --max-new", {"--max-new-tokens"}),
    ("judge rep", {"report"}),
    ("judge report --fr", {"--from"}),
    ("tasks gcd_", {"gcd_easy", "gcd_1", "gcd_2"}),
    ("answer --family gcd_", {"gcd_easy", "gcd_1", "gcd_2"}),
    ("export data --format ", {"parquet", "jsonl"}),
    ("experiment ", {"results", "poison", "hetero"}),
    ("completion ", set(SHELLS)),
    ("help boot", {"bootstrap"}),
]


IN_ZSH = ("debug ", "node --publisher-sampling ", "judge report --fr")
"""Checked on every run; zsh starts for each question, which takes a second."""
ASKED = [
    pytest.param(
        *(shell, typed, offered),
        marks=[pytest.mark.slow] if shell == "zsh" and typed not in IN_ZSH else [],
        id=f"{shell}-{typed or 'nothing'}",
    )
    for shell in SHELLS
    for typed, offered in CASES
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What `shoal completion` prints, by shell."""
    folder = tmp_path_factory.mktemp("scripts")
    for shell in SHELLS:
        text = script(shell)
        assert "\n".join(visible_lines(text)) == text  # printing changes nothing
        (folder / shell).write_text(text)
    return {shell: folder / shell for shell in SHELLS}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_takes_the_script(shell: str, scripts: dict[str, Path]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    done = output_of(program, "-n", str(scripts[shell]))
    assert not done


def test_what_a_command_does_is_a_line_of_a_list(scripts: dict[str, Path]) -> None:
    text = scripts["zsh"].read_text()
    for name, command in COMMANDS.items():
        does = command.does.replace("'", "'\"'\"'")
        assert f"    {name}:'{does}'" in text
    assert "    buffer:'The replay buffer by publisher" in text


@pytest.mark.parametrize(("ask", "typed", "offered"), ASKED)
def test_what_is_offered(ask: str, typed: str, offered: set[str], scripts: dict[str, Path]) -> None:
    program = shutil.which(ask)
    if program is None:
        pytest.skip(f"{ask} is not installed")
    found = _ASK[ask](program, scripts[ask], typed)
    assert offered <= found
    if typed and not typed.endswith(" "):
        assert found == offered


def _in_bash(program: str, path: Path, typed: str) -> set[str]:
    words = ["shoal", *typed.split(" ")]
    return set(output_of(program, "--norc", "-c", BASH, "bash", str(path), *words).split())


def _in_fish(program: str, path: Path, typed: str) -> set[str]:
    return set(output_of(program, "--no-config", "-c", FISH, str(path), f"shoal {typed}").split())


def _in_zsh(program: str, path: Path, typed: str) -> set[str]:
    function = path.with_name("_shoal")  # the name by which zsh finds it
    function.write_bytes(path.read_bytes())
    shown = output_of(program, "-f", "-c", ZSH, "zsh", str(function), f"shoal {typed}")
    return set(re.findall(r"^@@hit (\S+?)\s*$", shown, re.M))


_ASK: dict[str, Callable[[str, Path, str], set[str]]] = {
    "bash": _in_bash,
    "zsh": _in_zsh,
    "fish": _in_fish,
}


def output_of(*command: str) -> str:
    """Return what a program prints, errors included, which must be none."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=True
    )
    return done.stdout
