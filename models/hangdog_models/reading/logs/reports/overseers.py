"""What one log says of other processes than its own: reports of a coordinator, of a runtime, or of an analysis."""

from dataclasses import dataclass, field

from hangdog_models.findings import Finding
from hangdog_models.reading.logs.reports import deepep_barrier, launcher_endings, ray_deaths
from hangdog_models.reading.logs.reports.coordination import MissingTasks
from hangdog_models.reading.logs.reports.deepep_barrier import DeepepBarrier
from hangdog_models.reading.logs.reports.launcher_endings import LauncherEndings
from hangdog_models.reading.logs.reports.ray_deaths import RayDeaths
from hangdog_models.reading.logs.reports.recorder_analysis import RecorderAnalysis
from hangdog_models.reading.logs.reports.rendezvous import RendezvousWaits
from hangdog_models.reading.logs.reports.stall_inspector import StallReport

#: Parts of lines that open such a report, or of lines in it that stand alone.
HINTS = (
    "tensors were submitted", "[missing ranks:", "[ready ranks:", "may be stuck", "Thread is unstuck", "Not all ranks joining",
    "imed out task names:", "reached the barrier", "heartbeat timeout", "stopped sending heartbeats", "missing_ranks",
    deepep_barrier.HINT, "global_rank", "_MISMATCH", "Input/output mismatch in the collective", *launcher_endings.HINTS, *ray_deaths.HINTS,
)  # fmt: skip


@dataclass(slots=True)
class Overseers:
    """The reports in the lines of one process."""

    stalls: StallReport = field(default_factory=StallReport)
    rendezvous: RendezvousWaits = field(default_factory=RendezvousWaits)
    analysis: RecorderAnalysis = field(default_factory=RecorderAnalysis)
    tasks: MissingTasks = field(default_factory=MissingTasks)
    endings: LauncherEndings = field(default_factory=LauncherEndings)
    deaths: RayDeaths = field(default_factory=RayDeaths)
    barrier: DeepepBarrier = field(default_factory=DeepepBarrier)

    @property
    def expecting(self) -> bool:
        """Whether the next lines may belong to a report, whatever stands in them."""
        several_lines = (self.stalls, self.analysis, self.tasks, self.endings, self.deaths)
        return bool(self.analysis.rows or any(one.lines for one in several_lines))

    def take(self, line: str) -> bool:
        """Notes a line; true if it belongs to a report."""
        if not self.expecting and not any(hint in line for hint in HINTS):
            return False
        reports = (self.stalls, self.analysis, self.rendezvous, self.tasks, self.endings, self.deaths, self.barrier)
        return any(one.take(line) for one in reports)

    def findings(self, source: str, ranked: bool, listed: bool) -> list[Finding]:
        """What the reports come to.

        `ranked`: the rank of the process that wrote them is known. `listed`: so is who ended first, by torchrun's list.
        """
        reports = (self.stalls, self.analysis, self.tasks, self.deaths, self.barrier)
        found = [one for report in reports for one in report.findings(source)]
        # torchrun's local rank is one of the machine: of which rank's log this is says nothing of it.
        found += self.endings.findings(source, listed or ranked)
        return found + self.rendezvous.findings(source, not ranked)
