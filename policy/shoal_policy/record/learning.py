"""Judges from its latest rounds whether a training learns; findings say what to do. Pure.

    RoundRecord ──▶ LearningMemory ──▶ findings: begun, standing, over

Every finding begins at one threshold and is over at another, well away from it, so that chance
alone neither begins it nor lets it come and go. A trainer that starts again judges anew.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from shoal_ipc.answers.learning import Learning, LearningFinding
from shoal_policy.record.progress import RoundRecord
from shoal_policy.record.rolling_window import KEPT_ROUNDS, PASSED_OVER, RollingWindow
from shoal_policy.record.wrong_answer import WrongAnswer, ZeroRewardCause

ROUNDS: Final = 30
"""Least rounds that are judged together."""
ANSWERS: Final = 500
"""Least own answers that are judged together: of a policy that is right once in a hundred, none of
them earns anything once in 150 times."""
CUT_ROUNDS: Final = ROUNDS // 3
"""Rounds for answers cut by the token limit: it shows at once, and costs every round until then."""
CUT_ANSWERS: Final = ANSWERS // 5  # enough to tell 90 % from 75 % of them
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
"""Smallest fall of own reward that counts, in standard errors of as many questions: the best of a
long course is the luckiest of it."""
DRAWN: Final = 2 * ROUNDS
"""Number of external groups that must be verified before they are judged: two a round."""
USED: Final = (0.01, 0.03)
"""Share of them trained on at which the finding begins, and above which it ends."""


class Check(StrEnum):
    """The findings, in the order in which a person should read them."""

    NOTHING_EARNED = "nothing-earned"
    ALL_CUT = "all-cut"
    NO_SIGNAL = "no-signal"
    REWARD_FELL = "reward-fell"
    OTHERS_PASSED_OVER = "others-passed-over"


@dataclass(slots=True, kw_only=True)
class TrainingHistory:
    """The memory of a course. Changes in place, round by round."""

    trains: bool = True
    rounds: deque[RoundRecord] = field(default_factory=lambda: deque(maxlen=KEPT_ROUNDS))
    lately: RollingWindow = field(default_factory=lambda: RollingWindow.of((), ROUNDS, ANSWERS))
    """The rounds that are judged together."""
    lately_cut: RollingWindow = field(
        default_factory=lambda: RollingWindow.of((), CUT_ROUNDS, CUT_ANSWERS)
    )
    """Fewer rounds: those by which is judged what the token limit cuts."""
    best: float = 0.0
    """The most that the own answers earned `lately`, ever."""
    best_round: int = 0
    standing: dict[Check, int] = field(default_factory=dict)
    """Findings, and since which round."""
    wrong: WrongAnswer | None = None
    """An own answer that earned nothing."""
    wrong_round: int = 0

    def after(self, record: RoundRecord) -> None:
        """Take in a round."""
        self.rounds.append(record)
        lately = self.lately = RollingWindow.of(self.rounds, ROUNDS, ANSWERS)
        self.lately_cut = RollingWindow.of(self.rounds, CUT_ROUNDS, CUT_ANSWERS)
        if lately.enough and lately.reward > self.best:
            self.best, self.best_round = lately.reward, record.round
        for check, rule in RULES.items():
            if not self.trains and check not in OF_GENERATING:
                continue
            judged = rule(self)
            if check not in self.standing and judged.begins:
                self.standing[check] = record.round
            elif check in self.standing and judged.over:
                del self.standing[check]

    @property
    def wants_example(self) -> bool:
        """True if an answer of the latest round that earned nothing should be shown."""
        since = self.standing.get(Check.NOTHING_EARNED)
        if since is None:
            return False
        age = self.rounds[-1].round - self.wrong_round
        return self.wrong is None or self.wrong_round < since or age >= ROUNDS

    def show(self, wrong: WrongAnswer) -> None:
        """Take `wrong` for the answer that a finding shows."""
        self.wrong, self.wrong_round = wrong, self.rounds[-1].round

    def findings(self) -> tuple[LearningFinding, ...]:
        """Return what stands, in the order in which a person should read it."""
        standing = ((check, rule(self)) for check, rule in RULES.items() if check in self.standing)
        return tuple(
            LearningFinding(
                check=check,
                state=judged.state,
                since_round=self.standing[check],
                message=judged.says,
                remedy=judged.do,
                example=self.wrong.text if self.wrong and check is Check.NOTHING_EARNED else "",
            )
            for check, judged in standing
        )

    def view(self) -> Learning:
        """Return the report to the node: the findings, and a summary in one line."""
        findings, lately = self.findings(), self.lately
        state: Literal["ok", "early", "warn", "bad"] = "ok" if lately.enough else "early"
        if findings:
            state = "bad" if any(one.state == "bad" for one in findings) else "warn"
        return Learning(
            state=state,
            message=self._says(findings, lately),
            rounds=lately.rounds,
            external_sampled=lately.drawn,
            findings=findings,
        )

    def _says(self, findings: Sequence[LearningFinding], lately: RollingWindow) -> str:
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            return findings[0].message + more
        if not lately.enough:
            return f"too early to say, after {lately.rounds} rounds"
        if not lately.answers:
            return "nothing wrong; it asks no questions of its own"
        best = f", at best {self.best:.3f} at round {self.best_round}" if self.trains else ""
        return f"nothing wrong; own reward {lately.reward:.3f} in {lately.rounds} rounds{best}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmState:
    """One finding by the rounds so far: whether it begins or ends now, and its text."""

    begins: bool
    over: bool
    says: str
    do: str
    state: Literal["warn", "bad"] = "warn"


_ABOUT_OWN: Final[Mapping[ZeroRewardCause, str]] = {
    ZeroRewardCause.EMPTY: "the model ends before it says anything: take one that is tuned for "
    "instructions, or another chat template",
    ZeroRewardCause.CUT: "give answers more room: --max-new-tokens; a model that does not end by "
    "itself then either is not tuned for such questions: take another (--model)",
    ZeroRewardCause.NO_TAGS: "the model does not keep to the answer format: take one that is tuned "
    "for instructions (--model), or a swarm whose tasks take the plain answer (--tasks easy)",
    ZeroRewardCause.NOT_ALONE: "these tasks take nothing but the answer, and the model says more: "
    "start or join a swarm whose answers stand between tags (--tasks paper)",
    ZeroRewardCause.WRONG: "the tasks are too hard for this model: take a stronger one (--model), "
    "or easier tasks (--tasks, of the node that starts the swarm)",
}


def _nothing_earned(known: TrainingHistory) -> AlarmState:
    lately = known.lately
    of = f"{lately.answers} of the last {lately.rounds} rounds"
    says = f"own answers earn next to nothing: {lately.reward:.4f}, mean of {of}"
    return AlarmState(
        begins=_earns_nothing(lately),
        over=lately.reward >= NOTHING[1],
        says=says if lately.reward else f"no own answer has earned anything, of {of}",
        do=_ABOUT_OWN[known.wrong.why if known.wrong else ZeroRewardCause.WRONG],
        state="bad",
    )


def _earns_nothing(lately: RollingWindow) -> bool:
    return lately.enough and lately.answers > 0 and lately.reward < NOTHING[0]


def _all_cut(known: TrainingHistory) -> AlarmState:
    lately = known.lately_cut
    return AlarmState(
        begins=lately.enough and lately.answers > 0 and lately.cut >= CUT[0],
        over=lately.cut < CUT[1],
        says=f"{lately.cut:.0%} of own answers are cut at the token limit",
        do="give them more room: --max-new-tokens",
    )


def _no_signal(known: TrainingHistory) -> AlarmState:
    lately, is_easy = known.lately, known.lately.reward >= EASY
    why = "all are right" if is_easy else "the answers to a question are all alike"
    # Where nothing is earned, that is what to say.
    earns = lately.reward >= NOTHING[1]
    return AlarmState(
        begins=lately.enough and lately.groups > 0 and lately.same >= SAME[0] and earns,
        over=lately.same < SAME[1] or _earns_nothing(lately),
        says=f"own answers teach nothing: {lately.same:.0%} of {lately.groups} groups earned the "
        f"same throughout; {why} (own reward {lately.reward:.3f})",
        do="the tasks are too easy for this model by now: take harder ones (--tasks, "
        "of the node that starts the swarm), or end here"
        if is_easy
        else "more variety: a higher --temperature or more --completions; if it came with "
        "training, a lower --learning-rate, or --kl-beta",
    )


def _reward_fell(known: TrainingHistory) -> AlarmState:
    lately, best = known.lately, known.best
    share = min(1.0, max(0.0, (best + lately.reward) / 2))
    error = math.sqrt(2 * share * (1 - share) / max(1, lately.groups))
    is_lower = lately.reward < FELL[0] * best and best - lately.reward > ERRORS * error
    return AlarmState(
        begins=lately.enough and lately.groups > 0 and is_lower,
        over=lately.reward >= FELL[1] * best,
        says=f"own reward has fallen: {lately.reward:.3f} in {lately.rounds} rounds, "
        f"it was {best:.3f} at round {known.best_round}",
        do="a lower --learning-rate, or --kl-beta to hold it near its start; if it came with "
        "others' groups: fewer of them (--external), `shoal debug scores` says whose",
    )


_ABOUT_OTHERS: Final[Mapping[str, str]] = {
    "external_no_reward": "others' answers are wrong by this node's verifier: see them with "
    "`shoal debug rollouts`; their models are too weak for these tasks, or answer in another "
    "format",
    "external_all_same": "these questions have become too easy for the others: harder tasks "
    "(--tasks, of who starts the swarm)",
    "external_untokenizable": "their right answers are longer than --max-new-tokens, or not "
    "the same text in this model's tokens",
    "external_held_out": "others share questions that no training may use: see who with "
    "`shoal debug rollouts`",
    "external_over_quota": "too few networks share what teaches: more publishers",
    "external_unscored": "this node's own OpenEnv server or judge does not keep up: see the log",
}


def _others_passed_over(known: TrainingHistory) -> AlarmState:
    lately, counts = known.lately, known.lately.passed_over
    why = ", ".join(f"{n} {PASSED_OVER[name]}" for name, n in counts.items() if n)
    return AlarmState(
        begins=lately.enough and lately.drawn >= DRAWN and lately.used <= USED[0] * lately.drawn,
        # With hardly any looked at there is nothing to say of them either.
        over=lately.drawn < DRAWN / 2 or lately.used > USED[1] * lately.drawn,
        says=f"others' groups are passed over: of {lately.drawn} looked at in {lately.rounds} "
        f"rounds {lately.used} were trained on{'; ' * bool(why)}{why}",
        do=_ABOUT_OTHERS[max(counts, key=lambda name: counts[name])],
    )


RULES: Final[Mapping[Check, Callable[[TrainingHistory], AlarmState]]] = {
    Check.NOTHING_EARNED: _nothing_earned,
    Check.ALL_CUT: _all_cut,
    Check.NO_SIGNAL: _no_signal,
    Check.REWARD_FELL: _reward_fell,
    Check.OTHERS_PASSED_OVER: _others_passed_over,
}
"""Every finding, in the order of `Check`."""
OF_GENERATING: Final = frozenset({Check.NOTHING_EARNED, Check.ALL_CUT})
"""Findings that apply to a node that only generates, too."""
