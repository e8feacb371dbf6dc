"""What each verdict reason means to the owner of a node, and what there is to do. Pure.

The one table: `shoal debug refusals`, the page and `shoal watch` say these words; docs/wire.md has
the reasons in the order in which they are looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shoal_wire.verdict import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One reason in words."""

    says: str
    do: str


NOTHING: Final = "nothing: it was kept out, and who goes on is cut off by himself"
_BLOCK: Final = "nothing; to be rid of the peer at once: shoal debug block PEER"
_VERSION: Final = (
    "nothing, if it is seldom; if it stays, one of the two runs another version of shoal"
)
_PASSES: Final = "nothing: it passes"


def _hostile(says: str) -> Words:
    return Words(says=says, do=_BLOCK)


def _broken(says: str) -> Words:
    return Words(says=says, do=NOTHING)


WORDS: Final = MappingProxyType(
    {
        Reason.OVERSIZE_MESSAGE: _broken("a message longer than the swarm allows"),
        Reason.UNKNOWN_TOPIC: _broken("a message of another swarm, or on another's topic"),
        Reason.MALFORMED_ENVELOPE: Words(says="a message that cannot be read", do=_VERSION),
        Reason.NOT_CANONICAL: Words(says="a message written in another way", do=_VERSION),
        Reason.WRONG_PAYLOAD_TYPE: Words(says="a message of an unknown sort", do=_VERSION),
        Reason.MALFORMED_PAYLOAD: Words(says="answers that cannot be read", do=_VERSION),
        Reason.CORRUPT_COMPRESSION: _broken("answers whose packing is damaged"),
        Reason.OVERSIZE_PAYLOAD: _hostile("answers that unpack to more than the swarm allows"),
        Reason.KEY_NOT_ED25519: _hostile("signed with a key of another kind"),
        Reason.WEAK_KEY: _hostile("signed with a key in whose name anybody can sign"),
        Reason.BAD_SIGNATURE: _hostile("the signature is false: changed on the way, or forged"),
        Reason.SIGNER_NOT_SENDER: _hostile("signed by another than it was said to be from"),
        Reason.CLAIMS_TO_BE_ME: Words(
            says="somebody else sent it in this node's name",
            do="if another node runs with a copy of this identity.key, give it one of its own",
        ),
        Reason.WRONG_SWARM: Words(
            says="answers for another swarm",
            do="nothing; if all of a peer's are, it has another manifest: compare shoal debug id",
        ),
        Reason.EQUIVOCATION: _hostile("its author signed two different batches as one number"),
        Reason.FAR_FUTURE: Words(
            says="dated more than a day ahead",
            do="look at this machine's clock (shoal debug doctor); else it is the author's",
        ),
        Reason.QUESTION_MISMATCH: Words(
            says="the question is not the one that its seed gives",
            do="nothing; if all peers' are refused so, the task library here is another version",
        ),
        Reason.NO_GROUPS: _broken("a batch without answers"),
        Reason.TOO_MANY_GROUPS: _broken("more questions in a batch than allowed"),
        Reason.NO_COMPLETIONS: _broken("fewer answers to a question than the swarm asks for"),
        Reason.TOO_MANY_COMPLETIONS: _broken("more answers than the swarm allows"),
        Reason.EMPTY_TEXT: _broken("an answer without text"),
        Reason.OVERSIZE_TEXT: _broken("an answer longer than the swarm allows"),
        Reason.FORBIDDEN_CHARACTER: _broken("a character that no answer may hold"),
        Reason.BAD_NUMBER: _broken("a number that is none, or out of range"),
        Reason.BAD_FIELD: _broken("a field with a value that it cannot have"),
        Reason.INLINE_NOT_ALLOWED: _broken("a question of its own, where the swarm has none"),
        Reason.RESERVED_TASK: _broken("a question that is kept for evaluation"),
        Reason.BAD_ANNOUNCEMENT: _hostile("it announced a batch that is another's"),
        Reason.UNFETCHABLE: _broken("it announced a batch that it does not hold"),
        Reason.MALFORMED_REQUEST: Words(says="a request that cannot be read", do=_VERSION),
        Reason.REQUEST_FLOOD: _broken("it asks again and again before its time"),
        Reason.MALFORMED_ANSWER: Words(says="an answer to a request that is none", do=_VERSION),
        Reason.WRONG_OBJECT: _hostile("it gave other bytes than it was asked for"),
        Reason.NEWER_SCHEMA: Words(
            says="written by a newer version of shoal", do="update shoal here to read it"
        ),
        Reason.DUPLICATE: Words(says="known already", do="nothing: it came by another way before"),
        Reason.TOO_OLD: Words(
            says="older than the swarm keeps",
            do="nothing, if it is seldom; if it stays, look at the clocks: shoal debug doctor",
        ),
        Reason.NEAR_FUTURE: Words(
            says="dated ahead of this machine's clock",
            do="look at the clocks: shoal debug doctor",
        ),
        Reason.UNKNOWN_FAMILY: Words(
            says="of a task family that this swarm has not",
            do="nothing; a family of your own has to be given to every peer with --task-file",
        ),
        Reason.OTHER_VERIFIER_VERSION: Words(
            says="its family is judged by another version of the scorer here",
            do="have both run the same version of shoal",
        ),
        Reason.OVER_QUOTA: Words(
            says="more than one author may send for now", do="nothing: its next ones are taken"
        ),
        Reason.LEFT_TOPIC: Words(says="of a topic that this node has left", do=_PASSES),
        Reason.INTAKE_FULL: Words(
            says="this node was too busy to look at it",
            do="nothing, if it is seldom; if it stays, give the node more of the processor",
        ),
        Reason.WORKER_UNAVAILABLE: Words(
            says="the task worker was not there to look at it",
            do="nothing, if it is seldom; if it stays, see shoal debug status and the node's log",
        ),
        Reason.TOO_DEAR: Words(
            says="its questions took the task worker longer than a message may take",
            do="nothing, if it is seldom; if it stays with many authors, the machine is overloaded",
        ),
        Reason.VALIDATOR_TIMEOUT: Words(
            says="looking at it took too long",
            do="nothing, if it is seldom; if it stays, the machine is overloaded",
        ),
        Reason.VALIDATOR_FAULT: Words(
            says="this node failed while it looked at it",
            do="a fault of shoal's own: the node's log has it, please report it",
        ),
    }
)
"""Every reason but *valid*."""


def in_words(reason: Reason) -> dict[str, str]:
    """Return what a reason `says` and what to `do`, as views have them."""
    words = WORDS[reason]
    return {"says": words.says, "do": words.do}
