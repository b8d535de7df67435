"""Checks the host's memory: short of it, processes killed for it, errors that its modules could not correct."""

from hangdog_agent.checks.check_paths import CheckPaths, names, number, text
from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.counts import counted
from hangdog_models.findings import Impact

_SOURCE = "memory"
_WHERE = Component(CheckKind.MEMORY)


class MemoryCheck:
    """The check. What the kernel killed for is told by its log; where that cannot be read, this is all there is."""

    name = "memory"

    def __init__(self, places: CheckPaths, settings: CheckSettings) -> None:
        self.every_s = settings.memory_every_s
        self._places = places
        self._settings = settings
        self._killed: int | None = None
        self._errors: dict[str, int] = {}

    def supported(self) -> str:
        return "" if self._available() is not None else "/proc/meminfo cannot be read"

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        available = self._available()
        short = available is not None and available < self._settings.memory_short
        stated: list[tuple[str, Impact, str]] = []
        if short:
            stated.append(("memory short", Impact.TELLS_NOTHING, f"{available:.1%} of the memory is still available"))
        found = [state(self.name, _SOURCE, _WHERE, each, moment) for each in stated]
        before, self._killed = self._killed, self._kills()
        if before is not None and self._killed is not None and self._killed > before:
            times = self._killed - before
            # Most are killed for their container's limit, which is the program's matter; not so when all memory is used up.
            impact = Impact.SUSPECTS if short else Impact.TELLS_NOTHING
            words = f"the kernel killed {counted(times, 'process', 'processes')} for memory since the last look"
            mark = str(self._killed)
            killed = "out of memory", impact, words
            found.append(state(self.name, _SOURCE, _WHERE, killed, moment, mark=mark, lasting=False))
        return (*found, *self._modules(moment))

    def close(self) -> None:
        pass

    def _available(self) -> float | None:
        """The share of memory that programs may still get."""
        read = text(self._places.proc / "meminfo", 1 << 16)
        lines = dict(line.split(":", 1) for line in read.splitlines() if ":" in line) if isinstance(read, str) else {}
        try:
            return int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0])
        except (KeyError, ValueError, IndexError, ZeroDivisionError):
            return None

    def _kills(self) -> int | None:
        read = text(self._places.proc / "vmstat", 1 << 16)
        for line in read.splitlines() if isinstance(read, str) else ():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdecimal():
                return int(count)
        return None

    def _modules(self, moment: Moment) -> list[CheckResult]:
        """Uncorrected errors of each memory controller that were added since the agent looked first."""
        root = self._places.sys / "devices/system/edac/mc"
        found = []
        for name in names(root):
            count = number(root / name / "ue_count")
            if count is None:
                continue
            added = count - self._errors.setdefault(name, count)
            if added > 0:
                words = f"memory controller {name} had {counted(added, 'error')} that could not be corrected"
                stated = "host memory", Impact.SUSPECTS, words
                found.append(
                    state(self.name, _SOURCE, Component(CheckKind.MEMORY, name), stated, moment, mark=str(count))
                )
            elif added < 0:
                self._errors[name] = count
        return found
