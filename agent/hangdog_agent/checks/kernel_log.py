"""Checks the kernel's log: each event once, whatever restarts, by the names of boot and record.

What a line means is the readers' business (see hangdog_models.reading.hardware.kernel_log), so the agent has no second policy.
"""

import os
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, kind_of, state, texts
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.kmsg import KernelRecord, Kmsg, parse
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.counts import counted
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware import kernel_log
from hangdog_models.rules import policy

#: Seconds within which the lines of one fault are one event, for each device.
_ONE_EVENT_S = 60.0
#: Seconds within which the driver goes on after it has named a GPU.
_NAMED_S = 1.0
#: Lines of a stack that follow a hung task: the longest has 64 frames, and some words before them.
_TRACE_LINES = 80
_FRAME = re.compile(r"\s{0,8}(?:\? )?[\w.]{1,120}\+0x[0-9a-f]{1,8}/0x")
#: Records that are searched at once.
_CHUNK = 5_000
#: Events that a later line may take back, standing at the same time.
_MOST_OPEN = 32
#: What codes are about, by how they begin; the rest is about the machine.
_SORTS = (
    (("Xid", "GPU", "fabric", "peer memory"), CheckKind.GPU),
    (("SXid",), CheckKind.SWITCH),
    (("network", "link"), CheckKind.PORT),
    (("PCIe",), CheckKind.SLOT),
    (("disk", "file system"), CheckKind.DISK),
    (("NFS", "Lustre"), CheckKind.MOUNT),
    (("out of memory", "host memory"), CheckKind.MEMORY),
)

#: What makes two findings the same event.
_Key = tuple[str, str, tuple[str, ...], Impact]


class Kernel:
    """The check; `gpu_of` names the GPU at a PCI address, `any_facility` (tests only) also hears what users write."""

    name = "kernel"

    def __init__(
        self,
        places: CheckPaths,
        settings: CheckSettings,
        notes: Notes,
        gpu_of: Callable[[str], Component | None] = lambda _pci: None,
        any_facility: bool = False,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self.every_s = settings.kernel_every_s
        self._settings = settings
        self._notes = notes
        self._gpu_of = gpu_of
        self._any_facility = any_facility
        self._kmsg = Kmsg(places.kmsg, read)
        rules = policy.kernel()
        self._needles = sorted({"xid (", *(event.needle for event in rules.events)})
        self._traced = _any_of([event.needle for event in rules.events if event.trace])
        self._naming = _any_of([event.needle for event in rules.events if event.names_gpu])
        self._clearable = rules.lasting()
        noted = notes.recall(self.name)
        self._mark = noted["seq"] if isinstance(noted.get("seq"), int) else -1
        self._open_findings: dict[_Key, tuple[str, CheckResult]] = {}
        self._old = [line for line in noted.get("standing", []) if isinstance(line, str)][:_MOST_OPEN]
        self._seen: dict[tuple[str, str], float] = {}
        self._named: tuple[str, float] = ("", 0.0)
        self._open: list[tuple[KernelRecord, str]] = []
        self._waiting: list[KernelRecord] = []
        self._since = 0.0
        #: Disk errors heard lately, for the check of disks.
        self.complaints: deque[Finding] = deque(maxlen=64)

    def supported(self) -> str:
        return self._kmsg.open()

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        self._note()  # what the look before found has been taken by now
        if self._old:
            self._restore(moment)
        found: list[CheckResult] = []
        lost, relevant = 0, 0
        budget = self._settings.kmsg_records
        while budget > 0 and relevant < self._settings.kmsg_relevant:
            chunk = self._waiting or list(self._kmsg.records(min(_CHUNK, budget)))
            self._waiting = []
            if not chunk:
                break
            budget -= len(chunk)
            marked = self._marked(chunk)
            for place, record in enumerate(chunk):
                if record.seq <= self._mark:
                    continue
                lost += record.seq - self._mark - 1 if self._mark >= 0 else 0
                self._mark = record.seq
                if record.facility and not self._any_facility:
                    continue
                relevant += place in marked
                found += self._take(record, place in marked, moment)
                if relevant >= self._settings.kmsg_relevant:
                    self._waiting = chunk[place + 1 :]
                    break
        if self._open and self._since < moment.now:  # its stack has had a whole look to come
            found += self._end_passage(moment)
        if lost:
            found.append(self._gap(lost, moment))
        return (*found, *(result for _, result in self._open_findings.values()))

    def close(self) -> None:
        self._note()
        self._kmsg.close()

    def _marked(self, chunk: list[KernelRecord]) -> set[int]:
        """Which of these records hold a word that a line with a meaning holds: a few of thousands."""
        lines = [record.text.lower() for record in chunk]
        text = "\n".join(lines)
        begins = list(accumulate((len(line) + 1 for line in lines), initial=0))
        marked: set[int] = set()
        for needle in self._needles:
            at = text.find(needle)
            while at >= 0:
                place = bisect_right(begins, at) - 1
                marked.add(place)
                at = text.find(needle, begins[place + 1])
        return marked

    def _take(self, record: KernelRecord, relevant: bool, moment: Moment) -> list[CheckResult]:
        """One more record: begins a passage, belongs to the one that is open, or tells nothing."""
        found: list[CheckResult] = []
        if relevant and not (self._open and _FRAME.match(record.text)):  # a function may be called by such a word, too
            found += self._end_passage(moment)
            self._open, self._since = self._lines(record), moment.now
            if not self._traced.search(record.text):
                found += self._end_passage(moment)
        elif self._open:
            self._open += self._lines(record)
            if len(self._open) > _TRACE_LINES:
                found += self._end_passage(moment)
        return found

    def _note(self) -> None:
        seq = min([self._mark, *(record.seq - 1 for record, _ in self._open)])
        self._notes.note(self.name, {"seq": seq, "standing": [line for line, _ in self._open_findings.values()]})

    def _restore(self, moment: Moment) -> None:
        """States of before the agent's restart, as far as they were noted."""
        lines, self._old = self._old, []
        for line in lines:
            record = parse(line)
            for finding in kernel_log.read(line) if record else ():
                if record and finding.code in self._clearable:
                    self._open_findings[_key(finding)] = line, self._result(finding, record, moment)

    def _lines(self, record: KernelRecord) -> list[tuple[KernelRecord, str]]:
        """A record as the reader takes it. Only the driver's record of a GPU that is gone has several lines: whatever
        else holds the kernel's escaped line end may hold a user's text, such as the name of a process.
        """
        parts = record.text.split("\\x0a") if self._naming.match(record.text) else [record.text]
        return [(record, f"{record.level},{record.seq},{record.usec},-;{part}") for part in parts if part]

    def _end_passage(self, moment: Moment) -> list[CheckResult]:
        """Reads a telling record with what follows it, beside the events that it may take back."""
        passage, self._open = self._open, []
        if not passage:
            return []
        record, line = passage[0]
        context = [line for line, _ in self._open_findings.values()]
        named, since = self._named
        if named and 0 <= record.uptime_s - since <= _NAMED_S:
            context.append(named)
        before = {_key(finding): finding.times for finding in kernel_log.read("\n".join(context))}
        after = kernel_log.read("\n".join([*context, *(line for _, line in passage)]))
        if self._naming.search(record.text):
            self._named = line, record.uptime_s
        for gone in before.keys() - {_key(finding) for finding in after}:
            self._open_findings.pop(gone, None)
        found: list[CheckResult] = []
        for finding in after:
            if before.get(_key(finding)) != finding.times:
                found += self._hear(replace(finding, times=1), record, line, moment)
        return found

    def _hear(self, finding: Finding, record: KernelRecord, line: str, moment: Moment) -> list[CheckResult]:
        """What is new of a finding: nothing within a minute of its like, and no old story from before the agent."""
        last = max(self._seen.get((finding.code, device), -_ONE_EVENT_S) for device in {finding.device, ""})
        if not finding.device:  # the driver's last word on a fault often does not name the GPU again
            last = max([last, *(at for (code, _), at in self._seen.items() if code == finding.code)])
        repeated = record.uptime_s - last < _ONE_EVENT_S
        self._seen.pop((finding.code, finding.device), None)
        self._seen[finding.code, finding.device] = last if repeated else record.uptime_s
        if len(self._seen) > 1_000:
            del self._seen[next(iter(self._seen))]
        patience = policy.STALE_S if finding.code in self._clearable else policy.OLD_S
        if moment.now - record.uptime_s > patience:
            return []
        result = self._result(finding, record, moment)
        if finding.code in self._clearable:
            if len(self._open_findings) < _MOST_OPEN:
                self._open_findings.setdefault(_key(finding), (line, result))
            return []
        if finding.code in ("disk error", "disk gone", "file system"):
            self.complaints.append(result.finding)
        return [] if repeated else [result]

    def _result(self, finding: Finding, record: KernelRecord, moment: Moment) -> CheckResult:
        ago_s = max(0.0, moment.now - record.uptime_s)
        finding = replace(finding, at_s=moment.at_s - ago_s)
        identity = "/".join((moment.boot, self.name, str(record.seq), finding.code, finding.device))
        component = (self._gpu_of(finding.device) if finding.device else None) or _component(finding)
        lasting = finding.code in self._clearable
        kind = kind_of(finding.impact, finding.code)
        evidence = texts([record.text])
        return CheckResult(self.name, component, kind, finding, identity, evidence, lasting, moment.now - ago_s)

    def _gap(self, lost: int, moment: Moment) -> CheckResult:
        words = f"{counted(lost, 'record')} of the kernel log {'was' if lost == 1 else 'were'} overwritten before anybody read it"
        stated = "kernel log gap", Impact.TELLS_NOTHING, words
        where = Component(CheckKind.MACHINE)
        return state(self.name, kernel_log.SOURCE, where, stated, moment, mark=str(self._mark), lasting=False)


def _any_of(needles: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(needles))), re.IGNORECASE)


def _key(finding: Finding) -> _Key:
    return finding.code, finding.device, finding.peers, finding.impact


def _component(finding: Finding) -> Component:
    sort = next((sort for begins, sort in _SORTS if finding.code.startswith(begins)), CheckKind.MACHINE)
    about = finding.device or ",".join(finding.peers)
    return Component(sort, about, pci=finding.device if ":" in finding.device else "")
