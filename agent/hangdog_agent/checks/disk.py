"""Checks local file systems: those that turned read-only, and the agent's own folder.

The mount table comes from the kernel, which asks no disk; the folder is probed in a child that may hang.
"""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from hangdog_agent.checks.check_paths import CheckPaths, names, text
from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.confinement.confined_children import Child, ChildLimits
from hangdog_agent.confinement.subprocesses import run
from hangdog_models.findings import Finding, Impact

_SOURCE = "disk"
#: File systems that live on a disk of this machine and stop accepting writes when it fails.
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "reiserfs", "zfs"})
#: Devices kept in mind; a machine has some tens of volumes.
_MOST = 1_000
#: Bytes free to us on the file system of a folder.
_PROBE = "import os, sys; s = os.statvfs(sys.argv[1]); print(s.f_bavail * s.f_frsize)"
#: Between two probes, each a process of its own. Seconds.
_PROBE_EVERY_S = 60.0
#: How deep volumes are stacked upon volumes, encryption and RAID included.
_DEPTH = 4


class Disks:
    """The check. A disk that the kernel complains about and whose file system turned read-only is a disk fault."""

    name = "disk"

    def __init__(
        self, places: CheckPaths, settings: CheckSettings, complaints: Callable[[], Iterable[Finding]] = lambda: ()
    ) -> None:
        self.every_s = settings.disk_every_s
        self._places = places
        self._settings = settings
        self._complaints = complaints
        self._writable: set[str] = set()
        self._probed_at = float("-inf")
        self._probed: tuple[CheckResult, ...] = ()

    def supported(self) -> str:
        return (
            ""
            if self._mounts()
            else "neither /proc/1/mountinfo nor /proc/self/mountinfo can be read, or they name no local disk"
        )

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        found: list[CheckResult] = []
        for number, (folder, source, read_only) in self._mounts().items():
            if not read_only:
                if len(self._writable) < _MOST:
                    self._writable.add(number)
            elif number in self._writable:
                found.append(self._turned(number, folder, source, moment))
        if self._places.state is not None and moment.now - self._probed_at >= _PROBE_EVERY_S:
            self._probed_at = moment.now
            self._probed = tuple(self._probe(self._places.state, moment))
        return (*found, *self._probed)

    def close(self) -> None:
        pass

    def _mounts(self) -> dict[str, tuple[str, str, bool]]:
        """Local file systems by device number: a folder, the device's path, whether the file system takes no writes."""
        found: dict[str, tuple[str, str, bool]] = {}
        # of the first process, the host's where we are in a container that sees it, else our own
        reads = (text(self._places.proc / pid / "mountinfo") for pid in ("1", "self"))
        for line in next((read for read in reads if isinstance(read, str)), "").splitlines():
            words = line.split()
            behind = words.index("-") if "-" in words else len(words)
            # The options behind the dash are the file system's, those before it one mount's: `-o bind,ro` is no fault.
            if len(words) > behind + 3 and words[behind + 1] in _LOCAL and behind > 4:
                options = words[behind + 3].split(",")
                found.setdefault(words[2], (words[4], words[behind + 2], "ro" in options))
        return found

    def _turned(self, number: str, folder: str, source: str, moment: Moment) -> CheckResult:
        called = self._names(number) | {Path(source).name}
        reported = [finding for finding in self._complaints() if _about(finding.device, called)]
        component = Component(CheckKind.DISK, Path(source).name)
        if reported:
            words = (
                f"the disk of {folder} failed: its file system accepts no writes, and the kernel reports errors of it"
            )
            stated = "disk fault", Impact.CONVICTS, words
        else:
            stated = "file system", Impact.SUSPECTS, f"the file system of {folder} accepts no writes any more"
        evidence = (f"{source} turned read-only", *(finding.what for finding in reported))
        return state(self.name, _SOURCE, component, stated, moment, evidence)

    def _names(self, number: str) -> set[str]:
        """What the kernel may call a device: its partition, its disk, its controller, and what lies under a volume."""
        folder = self._places.sys / "dev/block" / number
        found: set[str] = set()
        below = [(folder, 0)]
        while below:
            at, depth = below.pop()
            path = os.path.realpath(at)
            found |= {part for part in Path(path).parts[-4:] if part[:1].isalpha()}
            if depth < _DEPTH:
                below += [(Path(path) / "slaves" / name, depth + 1) for name in names(Path(path) / "slaves")]
        return found - {"block", "virtual", "devices"}

    def _probe(self, folder: Path, moment: Moment) -> Iterable[CheckResult]:
        """The agent's own folder; a child asks, since a folder on a dead file system keeps whoever asks."""
        if not folder.is_absolute():
            return
        command = (sys.executable, "-I", "-S", "-c", _PROBE, str(folder))
        outcome = run(command, self._settings.probe_s, 1 << 10, child=Child(ChildLimits()))
        component = Component(CheckKind.DISK, str(folder))
        if outcome.timed_out:
            words = f"the file system of the agent's own folder {folder} does not answer: {outcome.why}"
            yield state(self.name, _SOURCE, component, ("folder hangs", Impact.SUSPECTS, words), moment)
        elif outcome.status == 0 and outcome.stdout.strip().isdigit():
            free = int(outcome.stdout)
            if free < self._settings.spool_bytes:
                words = f"{free >> 20} MiB are free for the agent's own folder {folder}: captures may be lost"
                yield state(self.name, _SOURCE, component, ("folder full", Impact.TELLS_NOTHING, words), moment)


def _about(device: str, called: set[str]) -> bool:
    """Whether a device named in the kernel log is one of these; `sda` is meant by a line about `sda1`, too."""
    return bool(device) and any(device == name or (device[:3] == name[:3] and _disk(device) == name) for name in called)


def _disk(partition: str) -> str:
    """The disk of a partition by the kernel's rule for names: `nvme0n1` of `nvme0n1p2`, `sda` of `sda1`."""
    disk = partition.rstrip("0123456789")
    return disk[:-1] if disk.endswith("p") and disk[-2:-1].isdigit() else disk
