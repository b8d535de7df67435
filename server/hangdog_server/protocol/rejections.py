"""Why the server does not take what an agent says: in words for people, and in one word for who counts."""

from enum import StrEnum
from typing import Self

from hangdog_models.errors import NotAllowed, WrongUse


class Denial(StrEnum):
    """Why an agent is turned away, or put out."""

    HELLO = "no_hello"
    NAME = "bad_name"
    TAKEN = "name_taken"
    FULL = "too_many"
    REPLACED = "replaced"
    STRANGER = "not_allowed"
    INVALID = "invalid"


class AgentRejected(StrEnum):
    """Why a request was refused before anything of it was done."""

    NO_TOKEN = "no_token"
    TOKEN = "bad_token"
    ROLE = "role"
    CERTIFICATE = "certificate"
    DENIED = "denied_certificate"
    PROXY = "proxy"
    UNKNOWN = "unknown_method"
    OTHER = "other"


class Unauthorised(NotAllowed):
    """Whoever asks may not; `reason` says why in one word, for who counts."""

    def __init__(self, reason: AgentRejected, what: str, hint: str = "", *, code: str = "") -> None:
        super().__init__(what, hint, code=code)
        self.reason = reason


class RejectedCapture(StrEnum):
    """What becomes of an agent's answer to an order."""

    TAKEN = "taken"
    UNREADABLE = "unreadable"
    LATE = "late"
    UNASKED = "unasked"
    AGAIN = "again"


class TurnedAway(WrongUse):
    """An agent's stream is not taken, or not any longer."""

    def __init__(self, denial: Denial, what: str, hint: str = "", *, code: str = "") -> None:
        super().__init__(what, hint, code=code)
        self.denial = denial


class Rejection(str):
    """Words that say why an answer is refused; `look` says it in one."""

    look: RejectedCapture

    def __new__(cls, look: RejectedCapture, words: str) -> Self:
        made = super().__new__(cls, words)
        made.look = look
        return made


def denial(error: WrongUse | NotAllowed) -> Denial:
    """Why this error turned an agent away; whatever has no name of its own said what cannot be."""
    if isinstance(error, NotAllowed):
        return Denial.STRANGER
    return error.denial if isinstance(error, TurnedAway) else Denial.INVALID


def look(refused: str, unreadable: str) -> RejectedCapture:
    """What became of an answer that was `refused` for this reason, or was `unreadable`; empty stands for neither."""
    if refused:
        return refused.look if isinstance(refused, Rejection) else RejectedCapture.UNASKED
    return RejectedCapture.UNREADABLE if unreadable else RejectedCapture.TAKEN
