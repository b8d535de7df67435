"""Opens an evidence bundle: a directory somebody hands us becomes a snapshot and a layout."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from hangdog.evidence.assemble import Placed, assemble
from hangdog.evidence.content import Unused, read_content
from hangdog.evidence.entry import Entry, mib
from hangdog.evidence.folder import folder_entries, read_file
from hangdog.evidence.naming import name_of
from hangdog_models.errors import HangdogError, UnreadableBundle, UnreadableEvidence, WrongUse
from hangdog_models.reading.job import read_interval, read_job
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import decoded, escaped
from hangdog_models.snapshot import Account, Job, Snapshot
from hangdog_models.topology import Layout

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class _Opened:
    """What the files of a bundle held, filled file by file."""

    job: Job = field(default_factory=Job)
    layout: Layout = field(default_factory=Layout)
    interval_s: float | None = None
    placed: list[Placed] = field(default_factory=list)
    files_read: int = 0
    ignored: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def open_bundle(path: Path, limits: Limits = DEFAULTS, progress: Progress | None = None) -> tuple[Snapshot, Layout]:
    """Reads a bundle; whatever cannot be read is in the snapshot's account, by name and with the reason.

    `progress` is called with the number of files done and in all. Raises WrongUse when there is nothing at `path`,
    UnreadableBundle when nothing in it is evidence.
    """
    opened = _Opened()
    total = 0
    for entry in _entries(path, limits, progress or (lambda done, total: None)):
        total += len(entry.data)
        if total > limits.total_bytes:
            opened.unreadable["."] = (
                f"more than {mib(limits.total_bytes)} in all (limit total_bytes): the rest is not read"
            )
            break
        _take(opened, entry, limits)
    return _snapshot(path, opened), _with_folders(opened)


def _entries(path: Path, limits: Limits, progress: Progress) -> Iterator[Entry]:
    try:
        folder = path.is_dir()
        path.stat()
    except OSError as error:  # a loop of links, no permission, nothing there
        raise WrongUse(f"{escaped(str(path))}: {(error.strerror or 'cannot be read').lower()}", _USAGE) from error
    if folder:
        yield from folder_entries(path, limits, progress)
    else:
        yield read_file(path.resolve(), path.name, limits)


_USAGE = "give a directory of evidence files, or a .zip or .tar.gz of one"


def _take(opened: _Opened, entry: Entry, limits: Limits) -> None:
    """Reads one file into `opened`; a file that is not what it claims to be becomes a line of the report."""
    shown = escaped(entry.path)
    try:
        if entry.problem:
            raise UnreadableEvidence(entry.problem)
        if entry.path == "job.toml":
            opened.job, opened.layout = read_job(decoded(entry.data, "TOML"))
        elif entry.path == "rounds.toml":
            opened.interval_s = read_interval(decoded(entry.data, "TOML"))
        else:
            name = name_of(entry.path)
            content = read_content(name, entry.data, limits)
            if isinstance(content, Unused):
                opened.ignored.append(shown)
                return
            opened.placed.append(Placed(name, content))
        opened.files_read += 1
    except HangdogError as error:
        opened.unreadable[shown] = escaped(str(error))


def _snapshot(path: Path, opened: _Opened) -> Snapshot:
    assembly = assemble(opened.placed)
    opened.unreadable |= {escaped(path): reason for path, reason in assembly.unused.items()}
    if not assembly.rounds:
        raise _nothing(path, opened)
    account = Account(
        files_read=opened.files_read,
        ignored=tuple(opened.ignored),
        unreadable=opened.unreadable,
        notes=(*opened.notes, *assembly.notes),
    )
    return Snapshot(opened.job, assembly.rounds, opened.interval_s, account=account)


def _with_folders(opened: _Opened) -> Layout:
    """The declared layout, with the machines of `machine-<NAME>` folders for ranks it places nowhere."""
    machine_of = {rank: name for name, ranks in opened.layout.machines.items() for rank in ranks}
    machines = dict(opened.layout.machines)
    for name in sorted((placed.name for placed in opened.placed), key=lambda name: name.path):
        if name.rank is None or name.machine is None:
            continue
        declared = machine_of.setdefault(name.rank, name.machine)
        if name.rank not in machines.get(declared, ()):
            machines[declared] = tuple(sorted((*machines.get(declared, ()), name.rank)))
    return replace(opened.layout, machines=machines)


def _nothing(path: Path, opened: _Opened) -> UnreadableBundle:
    """The error of a bundle without evidence, with the first reasons."""
    what = [f"{len(opened.ignored)} files are no evidence"] if opened.ignored else []
    what += [f"{name}: {reason}" for name, reason in list(opened.unreadable.items())[:3]]
    what += [f"{len(opened.unreadable) - 3} more are unreadable"] if len(opened.unreadable) > 3 else []
    inside = "; ".join(what) or "it is empty"
    return UnreadableBundle(f"{escaped(str(path))} holds no readable evidence ({inside})", _HINT)


_HINT = "put py-spy dumps in it, one a rank: py-spy dump --json --pid PID > rank0.json"
