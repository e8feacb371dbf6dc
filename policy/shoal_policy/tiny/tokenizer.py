"""The embedded model's tokenizer: one token per byte, and one per common phrase of easy families.

    text ─► split at phrases ─► one token per phrase, and one per byte in between

Lossless for any text in Unicode's normal form C (to which Qwen2's tokenizer normalises), so for all
ASCII: every byte has a token, and a phrase stands for its own characters. Questions of the easy
families become 4 to 25 tokens instead of 20 to 180 characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tokenizers import AddedToken, pre_tokenizers
from transformers import Qwen2Tokenizer

PAD: Final = "<pad>"
BOS: Final = "<bos>"
ANSWER: Final = "<ans>"
"""Ends the question; what follows is the answer."""
EOS: Final = "<eos>"
CLEAN: Final = "<clean>"
"""Precedes a question only in the warm start: after it the model answers as well as it can.
Reinforcement learning never uses it, so the ability is latent."""

SPECIALS: Final = (PAD, BOS, ANSWER, EOS, CLEAN)

PHRASES: Final = (
    "Your task is to convert a number between two different bases.\n\n"
    "If the target base is > 10, use lowercase letters a-z for digits above 9.\n\n"
    "Now, convert the ",
    "binary number ",
    "base-3 number ",
    "base-4 number ",
    " to binary\n",
    " to base-3\n",
    " to base-4\n",
    "How many 1 bits are there in the binary representation of the number ",
    "Find the Greatest Common Divisor (GCD) of these numbers: ",
    ". Give only the GCD as your final answer.",
    "Spell this word backward (example: sun -> nus): ",
    'How many times does the letter "',
    '" appear in the text: "',
    '"?',
    "Find the value of ",
    " in the equation: ",
    "Solve for ",
    "Determine the value of ",
    " that satisfies: ",
    " = ",
    " + ",
    " - ",
    ", ",
)
"""Text that many questions of the easy families have in common."""

MAX_POSITIONS: Final = 2048
"""Training saw at most 40; rotary positions cost no weights, so longer questions are possible."""


GAME_PHRASES: Final = (
    "Find my number, from ",
    " to ",
    ", in 5 guesses.",
    "Higher.",
    "Lower.",
    "Not a number.",
)
"""The same for the games that ship with shoal, for the model that plays them."""


def build_tokenizer(phrases: Sequence[str] = PHRASES) -> Any:
    """Return a new tokenizer, always the same: Qwen2's byte-level kind, without merges.

    It must be Qwen2's: `AutoTokenizer` loads no other for a model of that architecture.
    """
    words = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Qwen2Tokenizer(
        vocab={word: i for i, word in enumerate(words)},
        merges=[],
        unk_token=PAD,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        extra_special_tokens=[ANSWER, CLEAN],
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
    )
    # Not special tokens: they are text, and stay whole when special tokens are split.
    tokenizer.add_tokens(
        [AddedToken(phrase, special=False, normalized=False) for phrase in phrases]
    )
    return tokenizer
