"""What one log says of other processes than its own: reports of a coordinator, of a runtime, or of an analysis."""

from dataclasses import dataclass, field

from hangdog_models.findings import Finding
from hangdog_models.reading.logs.reports.coordination import MissingTasks
from hangdog_models.reading.logs.reports.recorder_analysis import RecorderAnalysis
from hangdog_models.reading.logs.reports.rendezvous import RendezvousWaits
from hangdog_models.reading.logs.reports.stall_inspector import StallReport

#: Parts of lines that open such a report, or of lines in it that stand alone.
HINTS = (
    "tensors were submitted", "[missing ranks:", "[ready ranks:", "may be stuck", "Thread is unstuck", "Not all ranks joining",
    "imed out task names:", "reached the barrier", "heartbeat timeout", "stopped sending heartbeats", "missing_ranks",
    "global_rank", "_MISMATCH", "Input/output mismatch in the collective",
)  # fmt: skip


@dataclass(slots=True)
class Overseers:
    """The reports in the lines of one process."""

    stalls: StallReport = field(default_factory=StallReport)
    rendezvous: RendezvousWaits = field(default_factory=RendezvousWaits)
    analysis: RecorderAnalysis = field(default_factory=RecorderAnalysis)
    tasks: MissingTasks = field(default_factory=MissingTasks)

    @property
    def expecting(self) -> bool:
        """Whether the next lines may belong to a report, whatever stands in them."""
        return bool(self.stalls.lines or self.analysis.lines or self.analysis.rows or self.tasks.lines)

    def take(self, line: str) -> bool:
        """Notes a line; true if it belongs to a report."""
        if not self.expecting and not any(hint in line for hint in HINTS):
            return False
        return any(one.take(line) for one in (self.stalls, self.analysis, self.rendezvous, self.tasks))

    def findings(self, source: str, ranked: bool) -> list[Finding]:
        """What the reports come to; `ranked`: the rank of the process that wrote them is known."""
        reports = (self.stalls, self.analysis, self.tasks)
        found = [one for report in reports for one in report.findings(source)]
        return found + self.rendezvous.findings(source, not ranked)
