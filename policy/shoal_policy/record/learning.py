"""Whether a training learns: from what its rounds say to findings, each with what to do. Pure.

RoundRecord, held-out ──▶ LearningMemory ──▶ findings: begun, standing, over
                             │
                             └──▶ a checkpoint: a restart goes on with what it knew
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from shoal_policy.record.lately import (
    ANSWERS,
    CUT_ANSWERS,
    CUT_ROUNDS,
    KEPT_EVALUATIONS,
    KEPT_ROUNDS,
    ROUNDS,
    Evaluation,
    Observed,
    RecentRounds,
    RoundFigures,
)
from shoal_policy.record.learning_rules import RULES, Check, Rule
from shoal_policy.record.progress import RoundRecord
from shoal_policy.record.wrong_answer import WrongAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFault:
    """Something that is not as it should be."""

    check: Check
    state: str
    """warn or bad, as `shoal debug doctor` has them."""
    since: int
    """Round at which it began."""
    says: str
    do: str
    example: str = ""
    """One own answer beside what was expected, made visible; empty where none is shown."""


@dataclass(slots=True, kw_only=True)
class LearningMemory:
    """The memory of a course. Changes in place, round by round."""

    subject: str = ""
    """Names what answers and what is asked: of another, nothing that was known holds."""
    trains: bool = True
    rounds: list[RoundFigures] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    best: float = 0.0
    best_round: int = 0
    standing: dict[Check, int] = field(default_factory=dict)
    """Findings, and since which round."""
    wrong: WrongAnswer | None = None
    wrong_round: int = 0

    def after(self, record: RoundRecord, held_out: Mapping[str, Any] | None = None) -> None:
        """Take in a round, and the latest held-out evaluation."""
        self.rounds.append(RoundFigures.of(record))
        del self.rounds[:-KEPT_ROUNDS]
        lately = self._lately()
        if lately.enough and lately.reward > self.best:
            self.best, self.best_round = lately.reward, record.round
        if held_out is not None:
            self._take_evaluation(held_out)
        known = self._known(lately)
        for check, rule in RULES.items():
            if self.trains or not rule.of_training:
                self._judge(check, rule, known)

    def _take_evaluation(self, held_out: Mapping[str, Any]) -> None:
        if self.evaluations and held_out["round"] <= self.evaluations[-1].round:
            return
        # A run that was stopped before it evaluates after it goes on, a round late.
        last = max(held_out["round"], self.rounds[0].round)
        until_then = [one for one in self.rounds if one.round <= last]
        own = RecentRounds.of(until_then, ROUNDS, ANSWERS).reward
        new = Evaluation(
            round=held_out["round"],
            passed=held_out["pass@1"],
            items=held_out["num_items"],
            own=own,
        )
        self.evaluations.append(new)
        del self.evaluations[:-KEPT_EVALUATIONS]

    def _judge(self, check: Check, rule: Rule, known: Observed) -> None:
        if check in self.standing:
            if rule.over(known):
                del self.standing[check]
        elif rule.begins(known):
            begun = self.evaluations if rule.of_evaluations else self.rounds
            self.standing[check] = begun[-1].round

    def _lately(self) -> RecentRounds:
        return RecentRounds.of(self.rounds, ROUNDS, ANSWERS)

    def _known(self, lately: RecentRounds) -> Observed:
        return Observed(
            lately=lately,
            lately_cut=RecentRounds.of(self.rounds, CUT_ROUNDS, CUT_ANSWERS),
            evaluations=self.evaluations,
            best=self.best,
            best_round=self.best_round,
            wrong=self.wrong,
        )

    @property
    def wants_example(self) -> bool:
        """Whether an answer of the latest round that earned nothing should be shown."""
        since = self.standing.get(Check.NOTHING_EARNED)
        if since is None:
            return False
        age = self.rounds[-1].round - self.wrong_round
        return self.wrong is None or self.wrong_round < since or age >= ROUNDS

    def show(self, wrong: WrongAnswer) -> None:
        """Take `wrong` for the answer that a finding shows."""
        self.wrong, self.wrong_round = wrong, self.rounds[-1].round

    def findings(self) -> list[LearningFault]:
        """Return what stands, in the order in which a person should read it."""
        known = self._known(self._lately())
        return [
            LearningFault(
                check=check,
                state=rule.state,
                since=self.standing[check],
                says=rule.says(known),
                do=rule.do(known),
                example=self.wrong.shown() if rule.with_example and self.wrong else "",
            )
            for check, rule in RULES.items()
            if check in self.standing
        ]

    def view(self) -> dict[str, Any]:
        """Return the report to the node: the findings, and a summary in one line."""
        findings, lately = self.findings(), self._lately()
        state = "ok" if lately.enough else "early"
        if findings:
            state = "bad" if any(one.state == "bad" for one in findings) else "warn"
        return {
            "state": state,
            "says": self._says(findings, lately),
            "rounds": lately.rounds,
            "drawn": lately.drawn,
            "findings": [asdict(one) for one in findings],
        }

    def _says(self, findings: list[LearningFault], lately: RecentRounds) -> str:
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            return findings[0].says + more
        if not lately.enough:
            return f"too early to say, after {lately.rounds} rounds"
        if not lately.answers:
            return "nothing wrong; it asks no questions of its own"
        best = f", at best {self.best:.3f} at round {self.best_round}" if self.trains else ""
        return f"nothing wrong; own reward {lately.reward:.3f} in {lately.rounds} rounds{best}"

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint keeps it: of the rounds, those that the next judgement needs."""
        rounds = self.rounds[-self._lately().rounds :]
        return {
            "subject": self.subject,
            "rounds": [list(astuple(one)) for one in rounds],
            "evaluations": [list(astuple(one)) for one in self.evaluations],
            "best": self.best,
            "best_round": self.best_round,
            "standing": {str(check): since for check, since in self.standing.items()},
            "wrong": None if self.wrong is None else asdict(self.wrong),
            "wrong_round": self.wrong_round,
        }

    @classmethod
    def from_json(
        cls, saved: Mapping[str, Any] | None, *, subject: str, trains: bool = True
    ) -> LearningMemory:
        """Take over what a checkpoint saved; begin anew with another subject, or another form."""
        new = cls(subject=subject, trains=trains)
        if saved is None or saved.get("subject") != subject:
            return new
        try:
            return cls(
                subject=subject,
                trains=trains,
                rounds=[RoundFigures(**_named(RoundFigures, one)) for one in saved["rounds"]],
                evaluations=[Evaluation(**_named(Evaluation, one)) for one in saved["evaluations"]],
                best=saved["best"],
                best_round=saved["best_round"],
                standing={Check(check): since for check, since in saved["standing"].items()},
                wrong=None if saved["wrong"] is None else WrongAnswer(**saved["wrong"]),
                wrong_round=saved["wrong_round"],
            )
        except (LookupError, TypeError, ValueError, AttributeError):
            return new


def _named(kind: type[Any], values: list[Any]) -> dict[str, Any]:
    return dict(zip(kind.__dataclass_fields__, values, strict=True))
