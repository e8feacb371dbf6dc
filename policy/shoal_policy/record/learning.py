"""Raises alarms if a run does not learn, judged by its latest rounds. Pure.

    RoundRecord ──▶ TrainingHistory ──▶ alarms: begun, active, resolved

Every alarm begins at one threshold and is resolved at another, far enough apart that chance alone
neither triggers it nor makes it flicker. A restarted trainer starts with an empty history.
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
from shoal_policy.record.rolling_window import KEPT_ROUNDS, SKIP_REASONS, RollingWindow
from shoal_policy.record.wrong_answer import WrongAnswer, ZeroRewardCause

MIN_ROUNDS: Final = 30
"""Minimum number of rounds in the window."""
MIN_ANSWERS: Final = 500
"""Minimum number of own answers in the window: if one in a hundred is right, none of 500 is right
once in 150 times."""
MIN_CUT_ROUNDS: Final = MIN_ROUNDS // 3
"""Rounds for truncated answers: they show at once, and cost every round until then."""
MIN_CUT_ANSWERS: Final = MIN_ANSWERS // 5  # enough to tell 90 % from 75 %
NEAR_ZERO: Final = (0.001, 0.004)
"""Mean own reward below which the alarm begins, and at which it is resolved."""
TRUNCATED_SHARE: Final = (0.9, 0.75)
"""Share of own answers truncated at which the alarm begins, and below which it is resolved."""
EQUAL_SHARE: Final = (0.98, 0.9)
"""Share of own groups with equal rewards at which the alarm begins, and below which it ends."""
TOO_EASY: Final = 0.98
"""Own reward at which questions count as too easy."""
DROP: Final = (0.7, 0.85)
"""Share of the best own reward below which the alarm begins, and at which it is resolved."""
MIN_DROP_ERRORS: Final = 4.0
"""Minimum drop of own reward, in standard errors for this number of questions: the best value of a
long run is its luckiest."""
MIN_VERIFIED: Final = 2 * MIN_ROUNDS
"""Minimum number of verified external groups: two per round."""
MIN_USABLE: Final = (0.5, 0.25)
"""Share of them that is not skipped as intended, at which the alarm may begin, and below which it
is resolved."""
USED_SHARE: Final = (0.01, 0.03)
"""Share of them trained on at which the alarm begins, and above which it is resolved."""


class Check(StrEnum):
    """The alarms, in the order in which a person should read them."""

    NOTHING_EARNED = "nothing-earned"
    ALL_CUT = "all-cut"
    NO_SIGNAL = "no-signal"
    REWARD_FELL = "reward-fell"
    OTHERS_PASSED_OVER = "others-passed-over"


@dataclass(slots=True, kw_only=True)
class TrainingHistory:
    """The history of a run. Changes in place, round by round."""

    trains: bool = True
    rounds: deque[RoundRecord] = field(default_factory=lambda: deque(maxlen=KEPT_ROUNDS))
    recent: RollingWindow = field(
        default_factory=lambda: RollingWindow.of((), MIN_ROUNDS, MIN_ANSWERS)
    )
    """The latest rounds, judged together."""
    recent_cut: RollingWindow = field(
        default_factory=lambda: RollingWindow.of((), MIN_CUT_ROUNDS, MIN_CUT_ANSWERS)
    )
    """Fewer rounds, for answers truncated at the token limit."""
    best: float = 0.0
    """The highest own reward of any `recent` window."""
    best_round: int = 0
    active: dict[Check, int] = field(default_factory=dict)
    """Active alarms, with the round in which each began."""
    wrong: WrongAnswer | None = None
    """An own answer that earned nothing."""
    wrong_round: int = 0

    def add(self, record: RoundRecord) -> None:
        """Add a round and update the alarms."""
        self.rounds.append(record)
        recent = self.recent = RollingWindow.of(self.rounds, MIN_ROUNDS, MIN_ANSWERS)
        self.recent_cut = RollingWindow.of(self.rounds, MIN_CUT_ROUNDS, MIN_CUT_ANSWERS)
        if recent.is_full and recent.reward > self.best:
            self.best, self.best_round = recent.reward, record.round
        for check, rule in RULES.items():
            if not self.trains and check not in GENERATOR_CHECKS:
                continue
            alarm = rule(self)
            if check not in self.active and alarm.begins:
                self.active[check] = record.round
            elif check in self.active and alarm.resolved:
                del self.active[check]

    @property
    def needs_example(self) -> bool:
        """Return whether a zero-reward answer of the latest round should be shown."""
        since = self.active.get(Check.NOTHING_EARNED)
        if since is None:
            return False
        age = self.rounds[-1].round - self.wrong_round
        return self.wrong is None or self.wrong_round < since or age >= MIN_ROUNDS

    def set_example(self, wrong: WrongAnswer) -> None:
        """Set the answer that the alarm shows."""
        self.wrong, self.wrong_round = wrong, self.rounds[-1].round

    def findings(self) -> tuple[LearningFinding, ...]:
        """Return the active alarms, in the order in which a person should read them."""
        active = ((check, rule(self)) for check, rule in RULES.items() if check in self.active)
        return tuple(
            LearningFinding(
                check=check,
                state=alarm.state,
                since_round=self.active[check],
                message=alarm.message,
                remedy=alarm.remedy,
                example=self.wrong.text if self.wrong and check is Check.NOTHING_EARNED else "",
            )
            for check, alarm in active
        )

    def view(self) -> Learning:
        """Return the report to the node: the alarms, and a summary in one line."""
        findings, recent = self.findings(), self.recent
        state: Literal["ok", "early", "warn", "bad"] = "ok" if recent.is_full else "early"
        if findings:
            state = "bad" if any(one.state == "bad" for one in findings) else "warn"
        return Learning(
            state=state,
            message=self._summarise(findings, recent),
            rounds=recent.rounds,
            external_sampled=recent.verified,
            findings=findings,
        )

    def _summarise(self, findings: Sequence[LearningFinding], recent: RollingWindow) -> str:
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            return findings[0].message + more
        if not recent.is_full:
            return f"no alarm; {recent.rounds} rounds are too few to judge"
        if not recent.answers:
            return "no problem found; it generates no own answers"
        best = f", at best {self.best:.3f} at round {self.best_round}" if self.trains else ""
        return f"no problem found; own reward {recent.reward:.3f} in {recent.rounds} rounds{best}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmState:
    """One alarm for the rounds so far: whether it begins or is resolved, and its text."""

    begins: bool
    resolved: bool
    message: str
    remedy: str
    state: Literal["warn", "bad"] = "warn"


_ZERO_REWARD_REMEDIES: Final[Mapping[ZeroRewardCause, str]] = {
    ZeroRewardCause.EMPTY: "the model ends before it writes anything: use one that is tuned for "
    "instructions, or another chat template",
    ZeroRewardCause.CUT: "allow longer answers: --max-new-tokens; a model that still does not stop "
    "by itself is not tuned for such questions: use another (--model)",
    ZeroRewardCause.NO_TAGS: "the model does not follow the answer format: use one that is tuned "
    "for instructions (--model), or a swarm whose tasks accept a plain answer (--tasks easy)",
    ZeroRewardCause.NOT_ALONE: "these tasks accept only the bare answer, and the model writes "
    "more: start or join a swarm whose answers are tagged (--tasks paper)",
    ZeroRewardCause.WRONG: "the tasks are too hard for this model: use a stronger one (--model), "
    "or start a swarm with easier tasks (--tasks)",
}


def _nothing_earned(history: TrainingHistory) -> AlarmState:
    recent = history.recent
    of = f"{recent.answers} of the last {recent.rounds} rounds"
    message = f"own answers earn almost nothing: {recent.reward:.4f}, mean of {of}"
    return AlarmState(
        begins=_earns_nothing(recent),
        resolved=recent.reward >= NEAR_ZERO[1],
        message=message if recent.reward else f"no own answer has earned anything, of {of}",
        remedy=_ZERO_REWARD_REMEDIES[
            history.wrong.cause if history.wrong else ZeroRewardCause.WRONG
        ],
        state="bad",
    )


def _earns_nothing(recent: RollingWindow) -> bool:
    return recent.is_full and recent.answers > 0 and recent.reward < NEAR_ZERO[0]


def _all_cut(history: TrainingHistory) -> AlarmState:
    recent = history.recent_cut
    return AlarmState(
        begins=recent.is_full
        and recent.answers > 0
        and recent.truncated_share >= TRUNCATED_SHARE[0],
        resolved=recent.truncated_share < TRUNCATED_SHARE[1],
        message=f"{recent.truncated_share:.0%} of own answers are truncated at the token limit",
        remedy="allow longer answers: --max-new-tokens",
    )


def _no_signal(history: TrainingHistory) -> AlarmState:
    recent, is_easy = history.recent, history.recent.reward >= TOO_EASY
    why = "all are correct" if is_easy else "all answers to a question are equally good"
    # Where nothing is earned, that alarm matters more.
    earns = recent.reward >= NEAR_ZERO[1]
    return AlarmState(
        begins=recent.is_full
        and recent.groups > 0
        and recent.equal_share >= EQUAL_SHARE[0]
        and earns,
        resolved=recent.equal_share < EQUAL_SHARE[1] or _earns_nothing(recent),
        message=f"own answers give no signal: {recent.equal_share:.0%} of {recent.groups} groups "
        f"have equal rewards; {why} (own reward {recent.reward:.3f})",
        remedy="the tasks have become too easy for this model: start a swarm with harder ones "
        "(--tasks), or stop here"
        if is_easy
        else "more variety: a higher --temperature or more --completions; if it came with "
        "training, a lower --learning-rate, or --kl-beta",
    )


def _reward_fell(history: TrainingHistory) -> AlarmState:
    recent, best = history.recent, history.best
    share = min(1.0, max(0.0, (best + recent.reward) / 2))
    error = math.sqrt(2 * share * (1 - share) / max(1, recent.groups))
    is_lower = recent.reward < DROP[0] * best and best - recent.reward > MIN_DROP_ERRORS * error
    return AlarmState(
        begins=recent.is_full and recent.groups > 0 and is_lower,
        resolved=recent.reward >= DROP[1] * best,
        message=f"own reward has fallen: {recent.reward:.3f} in {recent.rounds} rounds, "
        f"it was {best:.3f} at round {history.best_round}",
        remedy="a lower --learning-rate, or --kl-beta to keep it near its start; if it came with "
        "external groups: use fewer (--external); `shoal debug scores` shows whose",
    )


_SKIP_REMEDIES: Final[Mapping[str, str]] = {
    "external_no_reward": "external answers are wrong by this node's verifier: see them with "
    "`shoal debug rollouts`; their models are too weak for these tasks, or use another format",
    "external_untokenizable": "correct external answers are longer than --max-new-tokens, or "
    "change when this model's tokenizer re-encodes them",
    "external_held_out": "other nodes share held-out questions: see whose with "
    "`shoal debug rollouts`",
    "external_unscored": "this node's own OpenEnv server or judge does not keep up: see the log",
}


_AS_INTENDED: Final = ("external_all_same", "external_over_quota")
"""Skips that no user has to act on: others answer all right, as in any run that has learned, or one
network offers more than its share, as every swarm on one machine does. Tasks that have become too
easy raise their alarm by own answers."""


def _external_skipped(history: TrainingHistory) -> AlarmState:
    recent = history.recent
    counts = {name: recent.skipped[name] for name in _SKIP_REMEDIES}
    usable = recent.verified - sum(recent.skipped[name] for name in _AS_INTENDED)
    why = ", ".join(f"{n} {SKIP_REASONS[name]}" for name, n in counts.items() if n)
    return AlarmState(
        begins=recent.is_full
        and usable >= max(MIN_VERIFIED, MIN_USABLE[0] * recent.verified)
        and recent.trained <= USED_SHARE[0] * usable,
        # With hardly any verified there is nothing to report about them either.
        resolved=usable < max(MIN_VERIFIED / 2, MIN_USABLE[1] * recent.verified)
        or recent.trained > USED_SHARE[1] * usable,
        message=f"external groups are skipped: of {usable} verified in {recent.rounds} "
        f"rounds {recent.trained} were trained on{'; ' * bool(why)}{why}",
        remedy=_SKIP_REMEDIES[max(counts, key=lambda name: counts[name])],
    )


RULES: Final[Mapping[Check, Callable[[TrainingHistory], AlarmState]]] = {
    Check.NOTHING_EARNED: _nothing_earned,
    Check.ALL_CUT: _all_cut,
    Check.NO_SIGNAL: _no_signal,
    Check.REWARD_FELL: _reward_fell,
    Check.OTHERS_PASSED_OVER: _external_skipped,
}
"""All alarms, in the order of `Check`."""
GENERATOR_CHECKS: Final = frozenset({Check.NOTHING_EARNED, Check.ALL_CUT})
"""Alarms that also apply to a node that only generates."""
