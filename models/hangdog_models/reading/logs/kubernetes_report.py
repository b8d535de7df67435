"""What Kubernetes says of pods and nodes, in whatever form it came: each reason with its meaning, and whose machine it is.

What a reason means stands in cluster_table.toml. A machine that was ready again later was not lost.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hangdog_models.findings import KUBERNETES, Finding, Impact
from hangdog_models.reading.logs import log_table
from hangdog_models.reading.printable import printable

_ASSIGNED = re.compile(r"Successfully assigned (?:\S{1,253}/)?(\S{1,253}) to (\S{1,253})")
#: Findings of one text that are kept.
_MOST = 1_000


@dataclass(slots=True)
class KubernetesReport:
    """What was read so far: findings with their ages, where pods run, when machines were ready again.

    `by_controller`: the controller of the cluster said so, which tells no machine of a pod.
    """

    found: list[tuple[Finding, str, float]] = field(default_factory=list)
    node_of: dict[str, str] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    by_controller: bool = False

    def add(self, kind: str, name: str, reason: str, message: str, age_s: float, at_s: float | None = None) -> None:
        """Notes a reason that a `pod`, a `node` or a `condition` of a node bears, so many seconds before the newest one."""
        if kind == "node" and reason == "NodeReady":
            self.was_ready(name, age_s)
        if assigned := _ASSIGNED.search(message):
            self.node_of.setdefault(assigned[1], assigned[2])
        known = log_table.cluster().find(f"{kind} {reason}: {message}")
        if known is None or len(self.found) >= _MOST:
            return
        quoted = f' ("{printable(message, 160)}")' if message else ""
        machine = name if kind in ("node", "condition") else ""
        what = f"{known[0].what}{quoted}" if machine else f"{known[0].what}: pod {printable(name, 120)}{quoted}"
        finding = Finding(KUBERNETES, known[0].code, known[0].impact, what, machine, at_s=at_s)
        self.found.append((finding, name, age_s))

    def was_ready(self, node: str, age_s: float) -> None:
        """Notes that a node became ready so many seconds ago."""
        self.ready[node] = min(age_s, self.ready.get(node, age_s))

    def findings(self) -> Iterator[Finding]:
        """One finding for each machine or pod and meaning."""
        seen: dict[tuple[str, str, Impact], Finding] = {}
        for finding, name, age_s in self.found:
            if not finding.machine and name in self.node_of:
                finding = replace(finding, machine=self.node_of[name])
            back = self.ready.get(finding.machine)
            if finding.impact is Impact.RESET and back is not None and back <= age_s:
                what = f"{finding.what}; it was ready again later"
                finding = replace(finding, impact=Impact.TELLS_NOTHING, what=what)
            if finding.impact is Impact.RESET and not finding.machine:
                if not self.by_controller:
                    continue  # a pod whose machine nothing tells
                what = (
                    f"Kubernetes lost the machine of pod {printable(name, 120)}: `kubectl get pods -o wide` tells which"
                )
                finding = replace(finding, impact=Impact.VICTIM, what=what)
            seen.setdefault((finding.code, finding.machine or name, finding.impact), finding)
        yield from seen.values()
