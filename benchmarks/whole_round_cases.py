"""What `whole_round`'s candidates have in common: models, questions, and how they are counted.

Models: the embedded one on the preset `easy`, whose rewards are real; and a random Qwen2 with
prompts of 160 to 224 tokens, rows of words that mean nothing. A random model is never right, and
our update skips groups without signal, which would favour it: so there the verifier runs, and then
a digest of the answer's text gives a pseudo-random reward, the same for all candidates.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from tokenizers import AddedToken, pre_tokenizers
from transformers import Qwen2Tokenizer
from transformers.utils.logging import disable_progress_bar

from benchmarks.update_cases import COMPLETIONS, small_qwen2

SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model with its work."""

    name: str
    questions: int = 8
    """Of a round, with `COMPLETIONS` answers each."""
    max_new_tokens: int
    learning_rate: float
    skipped: int
    """Rounds before the first that counts."""
    rounds: int
    """Rounds that count."""
    repeats: int
    """Runs of each candidate."""
    vocabulary: int = 0
    """Vocabulary size of the random model, with random rewards; 0: the embedded one, with its
    verifier's."""
    micro_batches: Sequence[int]
    """Micro-batch sizes tried for TRL; a quick pass uses the first."""
    goal: float
    """CPU seconds of TRL's fastest, over ours."""

    @property
    def rows(self) -> int:
        """Answers of a round."""
        return self.questions * COMPLETIONS

    @property
    def preset(self) -> str:
        """The tasks, by the name of their preset."""
        return "none" if self.vocabulary else "easy"


LONG_PROMPTS = Case(
    name="long_prompts",
    max_new_tokens=64,
    learning_rate=1e-6,
    skipped=1,
    rounds=2,
    repeats=3,
    vocabulary=4096,
    micro_batches=(8, 16),
    goal=7.0,
)
CASES = (
    Case(
        name="tiny",
        max_new_tokens=12,
        learning_rate=4e-4,
        skipped=3,
        rounds=100,
        repeats=3,
        micro_batches=(64, 32, 16),
        goal=2.8,
    ),
    LONG_PROMPTS,
    replace(
        LONG_PROMPTS,
        name="long_prompts_32k",
        questions=4,
        rounds=1,
        repeats=2,
        vocabulary=32_768,
    ),
)


def write_random(vocabulary: int, folder: Path) -> None:
    """Write a random model into `folder`/model and its questions into `folder`/words.toml."""
    disable_progress_bar()
    words, tokenizer = _words_and_tokenizer(vocabulary)
    model = small_qwen2(
        vocabulary,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    _write_questions(folder, words)


def _words_and_tokenizer(vocabulary: int) -> tuple[list[str], Any]:
    """A token for each byte; the rest of the vocabulary is words of one token."""
    # Of Qwen2's kind: `AutoTokenizer` loads no other with a model of that architecture.
    known = ["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Qwen2Tokenizer(
        vocab={name: at for at, name in enumerate(known)},
        merges=[],
        unk_token="<pad>",
        pad_token="<pad>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )
    words = [f"w{number:05}" for number in range(vocabulary - len(tokenizer))]
    tokenizer.add_tokens([AddedToken(word, special=False, normalized=False) for word in words])
    return words, tokenizer


def _write_questions(folder: Path, words: Sequence[str]) -> None:
    """512 questions of 152 to 216 words; the prompt's own text adds 8 tokens."""
    rng = random.Random(0)
    rows = [
        # Unlike answers, since a task with one answer is refused. `lot` rewards, not they.
        {"question": "".join(rng.choices(words, k=rng.randint(152, 216))), "answer": f"none {n}"}
        for n in range(512)
    ]
    (folder / "words.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "words.toml").write_text(
        'name = "words"\nrows = "words.jsonl"\nanswer_format = "plain"\nheld_out = 0\n'
    )


def lot(text: str) -> float:
    """Return a reward from 0 to 1 by an answer's text alone.

    Of 256 steps, so that a group of answers is never without signal: with two, one group in 128 is.
    """
    return hashlib.sha256(text.encode()).digest()[0] / 255


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children, ended or living (these to ± 10 ms)."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = psutil.Process().children(recursive=True)
    return (
        time.process_time()
        + ended.ru_utime
        + ended.ru_stime
        + sum(sum(child.cpu_times()[:2]) for child in living)
    )


def peak_mib() -> float:
    """Sum of the peak memory of this process and of each living child. Linux only."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(_peak_kib(process.pid) for process in processes) / 1024


def _peak_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("the kernel does not tell VmHWM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one run of a candidate, over the rounds that count."""

    rounds: int
    cpu_ms: float
    """A round's."""
    tokens: float
    """Generated in a round."""
    with_signal: float
    """Groups of a round whose rewards differ."""
    questions_digest: str
    """A digest of the questions."""
    peak_mib: float

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps(asdict(self))


@dataclass(slots=True)
class RoundCounter:
    """Called at each round's end; counts from the end of the last skipped round."""

    case: Case
    cpu_seconds: Callable[[], float] = cpu_seconds
    _number: int = 0
    _started: float = 0.0
    _ended: float = 0.0
    _tokens: int = 0
    _with_signal: int = 0
    _questions: Any = field(default_factory=hashlib.sha256)
    _peak_mib: float = 0.0

    def end_of_round(
        self, *, questions: Sequence[str], lengths: Sequence[int], with_signal: int
    ) -> None:
        """Take in a round: its questions, the answers' lengths in tokens, its groups with signal.

        Raises RuntimeError for a round that is not of the case's size.
        """
        if len(questions) != self.case.questions or len(lengths) != self.case.rows:
            raise RuntimeError(
                f"{self.case.name}: {len(questions)} questions and {len(lengths)} answers in a "
                f"round, not {self.case.questions} and {self.case.rows}"
            )
        self._number += 1
        counted = self._number - self.case.skipped
        if counted == 0:
            self._started = self.cpu_seconds()
        if counted <= 0 or counted > self.case.rounds:
            return
        self._tokens += sum(lengths)
        self._with_signal += with_signal
        self._questions.update("\0".join(questions).encode())
        if counted == self.case.rounds:
            self._ended = self.cpu_seconds()
            self._peak_mib = peak_mib()

    def found(self) -> Found:
        """Return the counts. Raises RuntimeError before the last round."""
        rounds = self.case.rounds
        if self._number < self.case.skipped + rounds:
            raise RuntimeError(f"{self.case.name}: ended after {self._number} rounds")
        return Found(
            rounds=rounds,
            cpu_ms=1000 * (self._ended - self._started) / rounds,
            tokens=self._tokens / rounds,
            with_signal=self._with_signal / rounds,
            questions_digest=self._questions.hexdigest(),
            peak_mib=self._peak_mib,
        )
