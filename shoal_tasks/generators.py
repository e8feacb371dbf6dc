"""The reasoning_gym 0.1.25 generators that families may use. Every scorer listed was reviewed.

reasoning_gym's own `score_answer` passes the completion to `eval` or to sympy's parser for nine
data sets: a completion is then a program that runs with the scorer's rights. The one that presets
use has a replacement in `safe_scorers` that never evaluates. Generators not listed here are
refused, because a family comes from a swarm's manifest, which another peer may have written.
"""

from __future__ import annotations

from typing import Final

DEFAULT_SCORER: Final = frozenset(
    {
        "aiw",
        "arc_1d",
        "base_conversion",
        "basic_arithmetic",
        "bf",
        "binary_alternation",
        "caesar_cipher",
        "count_bits",
        "count_primes",
        "gcd",
        "isomorphic_strings",
        "largest_island",
        "lcm",
        "leg_counting",
        "letter_counting",
        "modulo_grid",
        "number_filtering",
        "number_sequence",
        "ransom_note",
        "rotate_matrix",
        "rotten_oranges",
        "simple_equations",
        "simple_geometry",
        "string_manipulation",
        "string_splitting",
        "string_synthesis",
        "syllogism",
        "word_sequence_reversal",
    }
)
"""Scored by the base class: equality, otherwise containment. Nothing is parsed."""

REVIEWED_SCORER: Final = frozenset(
    {
        "calendar_arithmetic",
        "chain_sum",
        "decimal_arithmetic",
        "decimal_chain_sum",
        "fraction_simplification",
        "products",
    }
)
"""Scored by their own method, which parses numbers only with `int`, `float` or `Decimal`."""

TEXT_EVALUATING: Final = frozenset({"binary_matrix"})
"""The library's scorer evaluates the completion. It is never called: `safe_scorers` replaces it."""

SAFE_REPLACEMENT: Final = TEXT_EVALUATING | {"propositional_logic", "spell_backward"}
"""Scored by `safe_scorers`: the library's method evaluates text, blows up, or rewards too much."""

ALLOWED_GENERATORS: Final = DEFAULT_SCORER | REVIEWED_SCORER | SAFE_REPLACEMENT


def scorer_of(generator: str) -> str:
    """Describe how completions of a generator's tasks are scored."""
    if generator in TEXT_EVALUATING:
        return "shoal's own; the library's evaluates text"
    if generator in SAFE_REPLACEMENT:
        return "shoal's own"
    return "the library's equality" if generator in DEFAULT_SCORER else "the library's own"
