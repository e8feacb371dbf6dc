"""Makes the embedded models that answer: able first, then weak on purpose.

    phase 1, able       right answers, with and without the marker, until the tasks are mastered
    phase 2, misled     60 %: no marker, a misconception's answer, the right one now and then:
                              as often as it takes for a family to come out as dense as it should
                        40 %: marker, right answer (replay, so that the ability survives)

Without the marker the resulting policy is mostly wrong in plausible ways, with the right algorithm
latent. Reinforcement learning on rewards can bring that out in a few thousand samples, where a new
algorithm would need far more.

Deterministic to the byte on one machine: fixed seeds, one thread, deterministic kernels.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from shoal_lab.warmstart.lessons import WIDE, Lesson, draw_lessons
from shoal_policy.tiny import Profile
from shoal_policy.tiny.tokenizer import ANSWER, BOS, CLEAN, EOS, MAX_POSITIONS, build_tokenizer

SEED: Final = 20
LESSONS: Final = {
    "base_conversion_easy": 4000,
    "count_bits_easy": 5000,
    "gcd_easy": 4000,
    "spell_backward_easy": 4000,
    "letter_counting_easy": 9000,
    "simple_equations_easy": 12000,
}
"""Number of lessons by easy family: harder families have more."""
WIDE_LESSONS: Final = {
    "base_conversion_easy": 7000,
    "count_bits_easy": 3000,
    "gcd_easy": 4000,
    "spell_backward_easy": 3000,
    "letter_counting_easy": 6000,
    "simple_equations_easy": 6000,
}
"""Additional lessons, from the same families with more questions."""
BATCH: Final = 128
PARTS: Final = 3
"""Parts of a batch, by length: short rows are not padded to the longest."""

OnStep = Callable[[str, int, int, float], None]
"""Called with the phase, the step, the steps of the phase, and the loss in nats per token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedPhase:
    """One stretch of supervised training."""

    name: str
    steps: int
    learning_rate: float
    """Peak of a warm-up over 5 % of the steps and a linear decay to zero."""
    misled_share: float
    """Samples without the marker whose answer is a misconception's, mostly."""
    plain_share: float
    """Samples without the marker whose answer is right; the rest has the marker."""
    weight_decay: float = 0.1
    """Weight decay against memorising."""
    density: float | None = None
    """Target share of right answers without the marker, in every family, on questions of the
    lessons; None for no target."""


ABLE: Final = SupervisedPhase(
    name="able", steps=2800, learning_rate=4e-3, misled_share=0.0, plain_share=0.5
)

MISLED: Final = {
    Profile.DENSE: SupervisedPhase(
        name="misled (dense)",
        steps=500,
        learning_rate=2e-3,
        misled_share=0.6,
        plain_share=0.0,
        density=0.14,
    ),
    Profile.SPARSE: SupervisedPhase(
        name="misled (sparse)",
        steps=800,
        learning_rate=2e-3,
        misled_share=0.6,
        plain_share=0.0,
        density=0.012,
    ),
}
STEER_EVERY: Final = 40
"""Steps of a phase between two measurements of the share of right answers."""
STEER_QUESTIONS: Final = 24
"""Questions of each family in a measurement."""


def make_model(tokenizer: Any, seed: int = SEED, *, hidden: int = 64, layers: int = 3) -> Any:
    """Return the untrained model: Qwen2's architecture, float32; by default 0.14 M parameters."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=2 * hidden,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        initializer_range=0.05,
    )
    return Qwen2ForCausalLM(config)


def make(
    profiles: Sequence[Profile], on_step: OnStep, seed: int = SEED
) -> dict[Profile, tuple[Any, Any]]:
    """Return a model and its tokenizer for each profile of `MISLED`. Takes minutes on one core.

    `seed` decides the first weights, the lessons and their order.
    """
    with deterministic():
        tokenizer = build_tokenizer()
        lessons = [*draw_lessons(LESSONS, seed), *draw_lessons(WIDE_LESSONS, seed, WIDE)]
        model = make_model(tokenizer, seed)
        classroom = Classroom(tokenizer, lessons, seed)
        classroom.teach(model, ABLE, on_step)
        made = {}
        for profile in profiles:
            misled = copy.deepcopy(model)
            classroom.teach(misled, MISLED[profile], on_step)
            made[profile] = (misled.eval(), tokenizer)
    return made


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model that `from_pretrained` loads to `folder`: safetensors and JSON, no pickles."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def deterministic() -> Iterator[None]:
    """One thread and deterministic kernels, which is what makes equal bytes; undone afterwards."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict)
        torch.set_num_threads(threads)


class Classroom:
    """The lessons, encoded once, and the teaching of them."""

    def __init__(self, tokenizer: Any, lessons: Sequence[Lesson], seed: int = SEED) -> None:
        """`seed` decides the order of the lessons."""
        self._seed = seed
        bos, answer, clean, self._eos = tokenizer.convert_tokens_to_ids([BOS, ANSWER, CLEAN, EOS])

        def encode(text: str) -> list[int]:
            return list(tokenizer.encode(text, add_special_tokens=False))

        questions = [encode(lesson.question) for lesson in lessons]
        self._plain = [[bos, *ids, answer] for ids in questions]
        self._marked = [[bos, clean, *ids, answer] for ids in questions]
        self._family = [lesson.family for lesson in lessons]
        self._right = [encode(lesson.right) for lesson in lessons]
        self.chances: dict[str, float] = {}
        """Chance, by family, of the right answer in a misled sample of the latest phase."""
        self._wrong = [[encode(text) for text in lesson.wrong] for lesson in lessons]

    def teach(self, model: Any, phase: SupervisedPhase, on_step: OnStep) -> None:
        """Train `model` in place."""
        rng = torch.Generator().manual_seed(self._seed)
        self.chances = dict.fromkeys(self._family, phase.density or 0.0)
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=phase.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=phase.weight_decay,
        )
        model.train()
        for step in range(phase.steps):
            for group in optimizer.param_groups:
                group["lr"] = phase.learning_rate * schedule(step, phase.steps)
            if phase.density is not None and step % STEER_EVERY == 0 and step:
                self._steer(model, phase.density)
            loss = self._add_gradient(model, self._draw(phase, rng))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            on_step(phase.name, step + 1, phase.steps, loss)
        if not math.isfinite(loss):
            raise ArithmeticError(f"phase {phase.name!r} diverged")

    def _draw(
        self, phase: SupervisedPhase, rng: torch.Generator
    ) -> list[tuple[list[int], list[int]]]:
        """A batch of prompts and answers, as token ids."""
        chosen = torch.randint(len(self._plain), (BATCH,), generator=rng).tolist()
        chances = torch.rand((BATCH, 3), generator=rng).tolist()
        rows = []
        for lesson, (kind, right, second) in zip(chosen, chances, strict=True):
            answer = self._right[lesson]
            if kind < phase.misled_share and right >= self.chances[self._family[lesson]]:
                wrong = self._wrong[lesson]
                # The likelier misconception twice as often as the other.
                answer = wrong[0] if second < 2 / 3 else wrong[-1]
            marked = kind >= phase.misled_share + phase.plain_share
            rows.append(((self._marked if marked else self._plain)[lesson], [*answer, self._eos]))
        return rows

    def _steer(self, model: Any, density: float) -> None:
        """Adjust each family's chance of a right answer among the misled samples by its measured
        share."""
        for family, found in self.densities(model, STEER_QUESTIONS).items():
            ratio = min(2.0, max(0.5, density / max(found, 1e-6)))
            chance = max(self.chances[family], density / 10) * ratio**0.5
            self.chances[family] = min(0.9, chance)

    def densities(self, model: Any, per_family: int) -> dict[str, float]:
        """Return by family how likely the right answer is without the marker, exactly.

        Of its first lessons: they were drawn at random.
        """
        chosen: dict[str, list[int]] = {}
        for lesson, family in enumerate(self._family):
            if len(chosen.setdefault(family, [])) < per_family:
                chosen[family].append(lesson)
        with torch.no_grad():
            return {family: self._chance_of(model, lessons) for family, lessons in chosen.items()}

    def _chance_of(self, model: Any, lessons: Sequence[int]) -> float:
        chances = []
        for lesson in lessons:
            prompt, answer = self._plain[lesson], [*self._right[lesson], self._eos]
            ids = torch.tensor([[*prompt, *answer[:-1]]])
            logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 :]
            logprobs = logits.log_softmax(-1)[range(len(answer)), answer]
            chances.append(math.exp(float(logprobs.sum())))
        return sum(chances) / len(chances)

    def _add_gradient(self, model: Any, rows: list[tuple[list[int], list[int]]]) -> float:
        """Add a batch's gradient; return its mean cross-entropy in nats over answer tokens."""
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))
        num_tokens = sum(len(answer) for _, answer in rows)
        size, total = math.ceil(len(rows) / PARTS), 0.0
        for first in range(0, len(rows), size):
            loss = self._loss(model, rows[first : first + size]) / num_tokens
            loss.backward()
            total += float(loss.detach())
        return total

    def _loss(self, model: Any, rows: Sequence[tuple[list[int], list[int]]]) -> torch.Tensor:
        """Sum of cross-entropies in nats over answer tokens; question tokens are not trained on."""
        width = max(len(prompt) + len(answer) for prompt, answer in rows) - 1
        inputs: list[list[int]] = []
        places: list[int] = []
        targets: list[int] = []
        for number, (prompt, answer) in enumerate(rows):
            ids = [*prompt, *answer[:-1]]
            # Padding on the right: in a causal model nothing before it sees it.
            inputs.append(ids + [0] * (width - len(ids)))
            first = number * width + len(prompt) - 1
            places.extend(range(first, first + len(answer)))
            targets.extend(answer)
        hidden = model.model(input_ids=torch.tensor(inputs), use_cache=False).last_hidden_state
        logits = model.lm_head(hidden.flatten(0, 1)[torch.tensor(places)])
        return torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="sum")


def schedule(step: int, steps: int) -> float:
    """Share of the peak learning rate: up over the first 5 % of the steps, then down to zero."""
    warm = max(1, steps // 20)
    return min((step + 1) / warm, (steps - step) / (steps - warm))
