"""What an event of hardware, kernel or DCGM means for a machine, by the policies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.findings import Impact


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one kind of event means; `source` is where that is documented; `disputed`: which source differs, and what we took."""

    impact: Impact
    says: str
    source: str
    action: str = ""
    disputed: str = ""
    when: re.Pattern[str] | None = None
    defers: bool = False


@dataclass(frozen=True, slots=True)
class HardwareEvent:
    """A line of the kernel log by its pattern; without a `meaning` it only clears, remembers a GPU, or both."""

    code: str
    needle: str
    pattern: re.Pattern[str]
    reads: str
    meaning: Meaning | None
    clears: tuple[str, ...] = ()
    echo: bool = False
    names_gpu: bool = False
    of_named_gpu: bool = False
    trace: bool = False


@dataclass(frozen=True, slots=True)
class HardwarePart:
    """Where in the kernel a task hangs, by how the functions of its stack begin."""

    code: str
    functions: tuple[str, ...]
    meaning: Meaning


@dataclass(frozen=True, slots=True, eq=False)
class XidPolicy:
    name: str
    codes: Mapping[int, tuple[Meaning, ...]]
    switch: tuple[Meaning, ...]
    unlisted: Meaning

    def of(self, number: int, message: str) -> Meaning:
        """What an Xid with this message means."""
        return _first(self.codes.get(number, (self.unlisted,)), message)

    def of_switch(self, message: str) -> Meaning:
        """What an SXid with this message means."""
        return _first(self.switch, message)


@dataclass(frozen=True, slots=True, eq=False)
class KernelPolicy:
    name: str
    events: tuple[HardwareEvent, ...]
    places: tuple[HardwarePart, ...]

    def lasting(self) -> frozenset[str]:
        """Codes of states that last until a later line ends them, such as a link that is down."""
        return frozenset(code for event in self.events for code in event.clears)


@dataclass(frozen=True, slots=True, eq=False)
class DcgmPolicy:
    name: str
    messages: tuple[Meaning, ...]
    errors: Mapping[int, Meaning]
    severities: Mapping[int, Meaning]
    failed: Meaning

    def of(self, text: str, error: int | None, severity: int | None) -> Meaning:
        """What a failed result with this text, error number and severity means."""
        for meaning in self.messages:
            if meaning.when is not None and meaning.when.search(text):
                return meaning
        if error is not None and error in self.errors:
            return self.errors[error]
        return self.severities.get(severity, self.failed) if severity is not None else self.failed


def _first(meanings: tuple[Meaning, ...], message: str) -> Meaning:
    return next(meaning for meaning in meanings if meaning.when is None or meaning.when.search(message))
