"""The numbers of one log, as it grows: what was appended, read line by line, what went wrong in it, and the job's throughput."""

import re
from dataclasses import dataclass, field

from hangdog_models.numbers.number_watch import NumberAlarm, NumberThresholds, NumberWatch
from hangdog_models.numbers.work_rate import WorkDone
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.logs.log_lines import lines_of_log
from hangdog_models.reading.numbers import work_line
from hangdog_models.reading.numbers.number_line import lines

#: A line's beginning that is kept until its end comes: metrics lines of a thousand characters are usual.
_REST = 4096
#: Alarms that wait to be reported; later ones say the same.
_WAITING = 64
_END = re.compile(r"[\r\n]")
#: Lines read of what was appended, 30 µs each: the newest. More a second are one step of many ranks, or no steps.
_LINES = 64
#: What is in a line that concerns us: looking for it is cheap.
_HINTS = re.compile("loss|norm|overflow", re.IGNORECASE)
_LIMITS = Limits(text=_REST)


@dataclass(slots=True)
class LogNumbers:
    """The numbers of one log, whoever writes to it. `alarms` are those that nobody took yet, `work` is what the job has done."""

    watch: NumberWatch
    work: WorkDone = field(default_factory=WorkDone)
    alarms: list[NumberAlarm] = field(default_factory=list)
    _rest: str = ""

    def take(self, text: str, joins: bool, at: float) -> None:
        """Takes what was appended. Not `joins`: what lies before it was left out, so its first line may lack its front."""
        whole, rest = _parted((self._rest if joins else "") + text)
        self._rest = rest[-_REST:]
        if not joins:
            whole = _END.sub("\n", whole).partition("\n")[2]
        appended = _END.split(whole)
        throughputs = [one for one in appended if work_line.HINTS.search(one)][-_LINES:]
        if throughputs:
            rates = [work_line.read(line.text) for line in lines_of_log("\n".join(throughputs))]
            self.work.take([each for each in rates if each], at)
        hinted = [one for one in appended if _HINTS.search(one)][-_LINES:]
        for line in lines("\n".join(hinted), _LIMITS):
            self.alarms = [*self.alarms, *self.watch.take(line, at)][:_WAITING]

    def taken(self) -> list[NumberAlarm]:
        """The alarms that wait, which do so no longer."""
        taken, self.alarms = self.alarms, []
        return taken


def followed(thresholds: NumberThresholds) -> LogNumbers:
    """A log that is seen for the first time."""
    return LogNumbers(NumberWatch(thresholds))


def _parted(text: str) -> tuple[str, str]:
    """The whole lines, and the one that has no end yet."""
    end = max(text.rfind("\n"), text.rfind("\r")) + 1
    return text[:end], text[end:]
