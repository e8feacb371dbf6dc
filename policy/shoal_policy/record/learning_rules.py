"""The faults that a training may have, when each is told, and what to do. Pure: a row a finding.

Every finding begins at one threshold and is over at another, well away from it, so that chance
alone neither begins it nor lets it come and go. A threshold that counts right answers allows for
four standard errors of as many questions: the best of a long course is the luckiest of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shoal_policy.record.lately import Evaluation, Observed
from shoal_policy.record.wrong_answer import Why

NOTHING: Final = (0.001, 0.004)
"""Mean own reward below which the finding begins, and at which it ends."""
CUT: Final = (0.9, 0.75)
"""Share of own answers that are cut at which the finding begins, and below which it ends."""
SAME: Final = (0.98, 0.9)
"""Share of own groups whose rewards are all equal, at which the finding begins and ends."""
EASY: Final = 0.98
"""Own reward at which questions count as too easy."""
FELL: Final = (0.7, 0.85)
"""Share of the best own reward below which the finding begins, and at which it ends."""
ERRORS: Final = 4.0
"""Smallest difference that counts, in standard errors."""
SMOOTH: Final = 3
"""Number of held-out evaluations that are averaged."""
LONG: Final = 12
"""Number of held-out evaluations before a score that does not rise counts as flat."""
HELD_OUT_FALL: Final = 0.05
"""Smallest fall of held-out answers that counts."""
OWN_SLACK: Final = 0.02
"""How far own reward may fall and still count as level."""
RISE: Final = (0.1, 0.05)
"""Rise of own reward at which a flat held-out score is a finding, and below which it ends."""
FLAT: Final = (0.02, 0.04)
"""Rise of held-out answers below which they are flat, and at which they are not."""
DRAWN: Final = 60
"""Number of external groups that must be verified before they are judged."""
USED: Final = (0.01, 0.03)
"""Share of them trained on at which the finding begins, and above which it ends."""


class Check(StrEnum):
    """The findings, in the order in which a person should read it."""

    NOTHING_EARNED = "nothing-earned"
    ALL_CUT = "all-cut"
    NO_SIGNAL = "no-signal"
    REWARD_FELL = "reward-fell"
    HELD_OUT_FALLS = "held-out-falls"
    HELD_OUT_FLAT = "held-out-flat"
    OTHERS_PASSED_OVER = "others-passed-over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rule of a finding: when it begins, when it ends, and its text."""

    state: str
    """warn or bad, as `shoal debug doctor` has them."""
    begins: Callable[[Observed], bool]
    over: Callable[[Observed], bool]
    says: Callable[[Observed], str]
    do: Callable[[Observed], str]
    of_training: bool = True
    """Whether it has no meaning for a node that only generates."""
    with_example: bool = False
    """Whether an own answer is shown with it."""
    of_evaluations: bool = False
    """Whether it begins with a held-out evaluation, which may be taken in a round late."""


def _nothing(known: Observed) -> bool:
    lately = known.lately
    return lately.enough and lately.answers > 0 and lately.reward < NOTHING[0]


def _something(known: Observed) -> bool:
    return known.lately.reward >= NOTHING[1]


def _says_nothing(known: Observed) -> str:
    lately = known.lately
    of = f"{lately.answers} of the last {lately.rounds} rounds"
    if not lately.reward:
        return f"no own answer has earned anything, of {of}"
    return f"own answers earn next to nothing: {lately.reward:.4f}, mean of {of}"


_WHAT_TO_DO: Final[Mapping[str, str]] = {
    Why.EMPTY: "the model ends before it says anything: take one that is tuned for instructions, "
    "or another chat template",
    Why.CUT: "give answers more room: --max-new-tokens; a model that does not end by itself then "
    "either is not tuned for such questions: take another (--model)",
    Why.NO_TAGS: "the model does not keep to the answer format: take one that is tuned for "
    "instructions (--model), or a swarm whose tasks take the plain answer (--tasks easy)",
    Why.NOT_ALONE: "these tasks take nothing but the answer, and the model says more: start or "
    "join a swarm whose answers stand between tags (--tasks paper)",
    Why.WRONG: "the tasks are too hard for this model: take a stronger one (--model), or easier "
    "tasks (--tasks or --task-file, of who starts the swarm)",
}


def _do_about_nothing(known: Observed) -> str:
    why = Why.WRONG if known.wrong is None else known.wrong.why
    return _WHAT_TO_DO.get(why, _WHAT_TO_DO[Why.WRONG])


def _cut_off(known: Observed) -> bool:
    cut = known.lately_cut
    return cut.enough and cut.answers > 0 and cut.cut >= CUT[0]


def _no_signal(known: Observed) -> bool:
    lately = known.lately
    # Where nothing is earned, that is what to say.
    return lately.enough and lately.groups > 0 and lately.same >= SAME[0] and _something(known)


def _says_no_signal(known: Observed) -> str:
    lately = known.lately
    why = "all are right" if lately.reward >= EASY else "the answers to a question are all alike"
    return f"own answers teach nothing: {lately.same:.0%} of {lately.groups} groups earned the " + (
        f"same throughout; {why} (own reward {lately.reward:.3f})"
    )


def _do_about_no_signal(known: Observed) -> str:
    if known.lately.reward >= EASY:
        return (
            "the tasks are too easy for this model by now: take harder ones (--tasks or "
            "--task-file, of who starts the swarm), or end here"
        )
    return (
        "more variety: a higher --temperature or more --completions; if it came with training, a "
        "lower --learning-rate, or --kl-beta"
    )


def _fell(known: Observed) -> bool:
    lately, best = known.lately, known.best
    if not lately.enough or not lately.groups or lately.reward >= FELL[0] * best:
        return False
    return best - lately.reward > _error(best, lately.reward, lately.groups)


def _says_fell(known: Observed) -> str:
    return (
        f"own reward has fallen: {known.lately.reward:.3f} in {known.lately.rounds} rounds, "
        f"it was {known.best:.3f} at round {known.best_round}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """Some evaluations in a row, taken together."""

    round: int
    passed: float
    own: float


def _stretches(evaluations: Sequence[Evaluation]) -> list[_Stretch]:
    """Every `SMOOTH` evaluations in a row, oldest first."""
    rows = [evaluations[i : i + SMOOTH] for i in range(len(evaluations) - SMOOTH + 1)]
    return [
        _Stretch(
            round=row[-1].round,
            passed=sum(one.passed for one in row) / SMOOTH,
            own=sum(one.own for one in row) / SMOOTH,
        )
        for row in rows
    ]


def _held_out_peak(known: Observed) -> tuple[_Stretch, _Stretch] | None:
    """The best stretch that shares nothing with the latest, and the latest."""
    found = _stretches(known.evaluations)
    if len(found) <= SMOOTH:
        return None
    return max(found[:-SMOOTH], key=lambda one: one.passed), found[-1]


def _held_out_fall(known: Observed) -> float:
    """Return how far held-out answers have fallen while own ones have not, in allowed falls."""
    found = _held_out_peak(known)
    if found is None:
        return 0.0
    peak, now = found
    if now.own < peak.own - OWN_SLACK:
        return 0.0
    num_items = SMOOTH * known.evaluations[-1].items
    allowed = max(HELD_OUT_FALL, _error(peak.passed, now.passed, num_items))
    return (peak.passed - now.passed) / allowed


def _says_held_out_falls(known: Observed) -> str:
    found = _held_out_peak(known)
    if found is None:
        return "held-out answers had become worse"
    peak, now = found
    return (
        f"held-out answers become worse while own reward does not: pass@1 {now.passed:.3f}, "
        f"{peak.passed:.3f} at round {peak.round} (own reward {now.own:.3f}, was {peak.own:.3f})"
    )


def _long_while(known: Observed) -> tuple[_Stretch, _Stretch] | None:
    if len(known.evaluations) < LONG:
        return None
    found = _stretches(known.evaluations[-LONG:])
    return found[0], found[-1]


def _is_flat(known: Observed) -> bool:
    found = _long_while(known)
    if found is None:
        return False
    first, now = found
    num_items = SMOOTH * known.evaluations[-1].items
    gain, rise = now.passed - first.passed, now.own - first.own
    allowed = max(RISE[0], _error(first.passed, now.passed, num_items))
    return gain < FLAT[0] and rise > RISE[0] and rise - gain > allowed


def _moves(known: Observed) -> bool:
    found = _long_while(known)
    if found is None:
        return True
    first, now = found
    return now.passed - first.passed >= FLAT[1] or now.own - first.own < RISE[1]


def _says_flat(known: Observed) -> str:
    found = _long_while(known)
    if found is None:
        return "held-out answers did not become better"
    first, now = found
    return (
        f"held-out answers do not become better while own reward rises: pass@1 {now.passed:.3f}, "
        f"{first.passed:.3f} at round {first.round} (own reward {now.own:.3f}, was {first.own:.3f})"
    )


def _passed_over(known: Observed) -> bool:
    lately = known.lately
    return lately.enough and lately.drawn >= DRAWN and lately.used <= USED[0] * lately.drawn


def _taken(known: Observed) -> bool:
    lately = known.lately
    # With hardly any looked at there is nothing to say of them either.
    return lately.drawn < DRAWN / 2 or lately.used > USED[1] * lately.drawn


def _says_passed_over(known: Observed) -> str:
    lately = known.lately
    why = ", ".join(f"{count} {reason}" for reason, count in lately.passed.items() if count)
    return (
        f"others' groups are passed over: of {lately.drawn} looked at in {lately.rounds} rounds "
        f"{lately.used} were trained on{'; ' * bool(why)}{why}"
    )


_ABOUT_OTHERS: Final[Mapping[str, str]] = {
    "external_no_reward": "others' answers are wrong by this node's verifier: see them with "
    "`shoal debug rollouts`; their models are too weak for these tasks, or answer in another "
    "format",
    "external_all_same": "these questions have become too easy for the others: harder tasks "
    "(--tasks, of who starts the swarm)",
    "external_unread": "their right answers are longer than --max-new-tokens, or not the same text "
    "in this model's tokens",
    "external_reserved": "others share questions that no training may use: see who with "
    "`shoal debug rollouts`",
    "external_refused": "too few networks share what teaches: more publishers",
}


def _do_about_others(known: Observed) -> str:
    most = max(known.lately.passed_over, key=lambda name: known.lately.passed_over[name])
    return _ABOUT_OTHERS[most]


def _error(one: float, other: float, num_questions: int) -> float:
    """Standard errors, `ERRORS` of them, of the difference of two shares of right answers."""
    share = min(1.0, max(0.0, (one + other) / 2))
    return ERRORS * math.sqrt(2 * share * (1 - share) / max(1, num_questions))


def _always(text: str) -> Callable[[Observed], str]:
    return lambda _known: text


RULES: Final[Mapping[Check, Rule]] = {
    Check.NOTHING_EARNED: Rule(
        state="bad",
        begins=_nothing,
        over=_something,
        says=_says_nothing,
        do=_do_about_nothing,
        of_training=False,
        with_example=True,
    ),
    Check.ALL_CUT: Rule(
        state="warn",
        begins=_cut_off,
        over=lambda known: known.lately_cut.cut < CUT[1],
        says=lambda known: f"{known.lately_cut.cut:.0%} of own answers are cut at the token limit",
        do=_always("give them more room: --max-new-tokens"),
        of_training=False,
    ),
    Check.NO_SIGNAL: Rule(
        state="warn",
        begins=_no_signal,
        over=lambda known: known.lately.same < SAME[1] or _nothing(known),
        says=_says_no_signal,
        do=_do_about_no_signal,
    ),
    Check.REWARD_FELL: Rule(
        state="warn",
        begins=_fell,
        over=lambda known: known.lately.reward >= FELL[1] * known.best,
        says=_says_fell,
        do=_always(
            "a lower --learning-rate, or --kl-beta to hold it near its start; if it came with "
            "others' groups: fewer of them (--external), `shoal debug scores` says whose"
        ),
    ),
    Check.HELD_OUT_FALLS: Rule(
        state="warn",
        of_evaluations=True,
        begins=lambda known: _held_out_fall(known) > 1,
        over=lambda known: _held_out_fall(known) < 0.5,
        says=_says_held_out_falls,
        do=_always(
            "it learns something else than the tasks: look at own answers in `shoal debug "
            "rollouts`; a lower --learning-rate, or --kl-beta"
        ),
    ),
    Check.HELD_OUT_FLAT: Rule(
        state="warn",
        of_evaluations=True,
        begins=_is_flat,
        over=_moves,
        says=_says_flat,
        do=_always(
            "it only becomes surer of what it knows: harder or more tasks, or end here; more "
            "--eval-per-family for a surer figure"
        ),
    ),
    Check.OTHERS_PASSED_OVER: Rule(
        state="warn",
        begins=_passed_over,
        over=_taken,
        says=_says_passed_over,
        do=_do_about_others,
    ),
}
"""Every finding, in the order of `Check`."""
