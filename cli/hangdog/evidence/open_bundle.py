"""Opens an evidence bundle: a directory somebody hands us becomes a snapshot and a layout."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from hangdog.evidence.assemble import assemble
from hangdog.evidence.bundle_parts import BundleParts
from hangdog.evidence.collected import taken_apart
from hangdog.evidence.content import OWNERLESS, Logged, StackFile, Unused, read_contents, shared
from hangdog.evidence.entry import BundleEntry, mib
from hangdog.evidence.folder import folder_entries, read_file
from hangdog.evidence.inspected import counted
from hangdog.evidence.join_bundles import join
from hangdog.evidence.naming import name_of
from hangdog.evidence.packed.archive import archive_entries, is_archive
from hangdog.evidence.placed import Placed
from hangdog.evidence.whose.placing import Placing, place, with_folders
from hangdog.evidence.whose.process_tables import by_command, joined, without_tables
from hangdog.evidence.whose.ranks_in_text import by_rank
from hangdog.evidence.whose.unranked import numbered_by_order
from hangdog_models.errors import HangdogError, UnreadableBundle, UnreadableEvidence, WrongUse
from hangdog_models.process_groups import with_seen
from hangdog_models.ranks import Rank
from hangdog_models.reading.job import read_interval, read_job
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import decoded, escaped
from hangdog_models.snapshot import Account, Job, Round, Snapshot
from hangdog_models.stack import TRAINER
from hangdog_models.topology import Layout

Progress = Callable[[int, int], None]

#: How files end that hold the output of a process.
_LOGS = (".log", ".out", ".err")
_USAGE = "give a directory of evidence files, or a .zip, .tar.gz or .tar.zst of one"
_HINT = "put py-spy dumps in it, one a rank: py-spy dump --json --pid PID > rank0.json"


def open_bundle(
    path: Path, limits: Limits = DEFAULTS, progress: Progress | None = None, stalled_s: float | None = None
) -> tuple[Snapshot, Layout]:
    """Reads a bundle; whatever cannot be read is in the snapshot's account, by name and with the reason.

    `progress` is called with the number of files done and in all (0: not known). `stalled_s` is for how many seconds nothing
    had been seen to move; it counts before what `job.toml` says. Raises WrongUse when there is nothing at `path`,
    UnreadableBundle when nothing in it is evidence. A log or a report in which nothing is wrong is evidence.
    """
    return _assembled(escaped(str(path)), _read(path, limits, progress), stalled_s)


def open_bundles(
    paths: Sequence[Path],
    limits: Limits = DEFAULTS,
    progress: Progress | None = None,
    stalled_s: float | None = None,
) -> tuple[Snapshot, Layout]:
    """Reads the bundles of several machines as one; the limits hold for all of them together."""
    labels = _labels(paths)
    parts: list[BundleParts] = []
    for path in paths:
        used = sum(part.size for part in parts)
        left = replace(limits, total_bytes=max(0, limits.total_bytes - used))
        parts.append(_read(path, left, progress))
        if not parts[-1].placed:
            parts[-1].notes.append(f"{labels[len(parts) - 1]} holds no readable evidence")
    named = ", ".join(escaped(str(path)) for path in paths[:3]) + (", ..." if len(paths) > 3 else "")
    return _assembled(named, join(list(zip(labels, parts, strict=True))), stalled_s)


def _labels(paths: Sequence[Path]) -> list[str]:
    """What the files of each bundle are told by: its name, where it has one of its own."""
    names = [path.name or str(path) for path in paths]
    return [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, 1)]


def _read(path: Path, limits: Limits, progress: Progress | None) -> BundleParts:
    opened = BundleParts()
    files = _entries(path, limits, progress or (lambda done, total: None))
    for entry in (part for file in files for part in taken_apart(file, limits)):
        opened.size += len(entry.data)
        if opened.size > limits.total_bytes:
            opened.unreadable["."] = (
                f"more than {mib(limits.total_bytes)} in all (limit total_bytes): the rest is not read"
            )
            break
        _add_entry(opened, entry, limits)
    return opened


def _entries(path: Path, limits: Limits, progress: Progress) -> Iterator[BundleEntry]:
    try:
        path.stat()
    except OSError as error:  # a loop of links, no permission, nothing there
        raise WrongUse(
            f"{escaped(str(path))}: {(error.strerror or 'cannot be read').lower()}",
            _USAGE,
            code="no-such-path" if isinstance(error, FileNotFoundError) else "unreadable-file",
        ) from error
    if path.is_dir():
        yield from folder_entries(_unpacked(path), limits, progress)
    elif path.is_file() and is_archive(_head(path)):
        yield from archive_entries(path, limits, progress)
    else:  # one file of evidence, or none
        yield read_file(path.resolve(), path.name, limits)


def _unpacked(folder: Path) -> Path:
    """The bundle in a folder to which an archive of one was unpacked, and nothing else; the folder itself in any other case."""
    try:
        inside = list(islice(folder.iterdir(), 2))
    except OSError:  # who reads it says why
        return folder
    alone = len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink()
    return inside[0] if alone and (inside[0] / "job.toml").is_file() else folder


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(512)
    except OSError:  # read_file says why
        return b""


def _add_entry(opened: BundleParts, entry: BundleEntry, limits: Limits) -> None:
    """Reads one file into `opened`; a file that is not what it claims to be becomes a line of the report."""
    try:
        if entry.problem:
            raise UnreadableEvidence(entry.problem, code="unreadable-file")
        if entry.path == "job.toml":
            opened.job, opened.layout = read_job(decoded(entry.data, "TOML"))
        elif entry.path == "rounds.toml":
            opened.interval_s = read_interval(decoded(entry.data, "TOML"))
        else:
            _add_evidence(opened, entry, limits)
            return
        opened.files_read += 1
    except HangdogError as error:
        opened.unreadable[escaped(entry.path)] = escaped(str(error))


def _add_evidence(opened: BundleParts, entry: BundleEntry, limits: Limits) -> None:
    name = name_of(entry.path)
    for content in read_contents(name, entry.data, limits):
        if isinstance(content, Unused):
            opened.ignored.append(entry.path)
            if content.last_error:
                opened.last_errors[escaped(entry.path)] = escaped(content.last_error)
            return
        kept = shared(content, opened.frames) if isinstance(content, StackFile) else content
        opened.placed.append(Placed(name, kept))
    opened.files_read += 1


def _quiet(ignored: Iterable[str]) -> tuple[Rank, ...]:
    """The ranks whose own logs hold no evidence."""
    found = set()
    for path in ignored:
        with suppress(UnreadableEvidence):  # joined bundles have folders of names that may be anything
            name = name_of(path)
            if name.rank is not None and name.role == TRAINER and path.endswith(_LOGS):
                found.add(name.rank)
    return tuple(sorted(found))


def _assembled(path: str, opened: BundleParts, stalled_s: float | None) -> tuple[Snapshot, Layout]:
    job = opened.job if stalled_s is None else replace(opened.job, stalled_s=stalled_s)
    rest, tables = without_tables(opened.placed)
    found, without_rank, remarks = counted(rest, opened.layout, job.stalled_s is not None)
    listed = by_command(tables, found, opened.layout)
    found = [*found, *listed.placed]
    layout, contradictions, placing = _placed(found, opened.layout)
    if opened.layout == Layout():
        numbered, remark = numbered_by_order(found, placing)
        if remark:
            layout, contradictions, placing = _placed(numbered, opened.layout)
            placing.notes[:0] = remark
    beside = joined(tables, placing, layout, listed.placed)
    placing.notes[:0] = listed.notes
    assembly = assemble([*placing.placed, *beside.placed], layout)
    unused = {**without_rank, **placing.unused, **beside.unused, **assembly.unused}
    unreadable = opened.unreadable | {escaped(path): reason for path, reason in unused.items()}
    ignored = sorted(map(escaped, opened.ignored + assembly.ignored))
    counted_anything = assembly.records or assembly.progress
    if not assembly.rounds and not counted_anything and not _read_beside_stacks(placing):
        raise _nothing(path, ignored, unreadable, opened.last_errors)
    job, by_log = _stalled(job, assembly.rounds, opened.placed)
    account = Account(
        files_read=opened.files_read - len(assembly.ignored) - len(unused),
        ignored=tuple(ignored),
        unreadable=dict(sorted(unreadable.items())),
        notes=tuple(
            escaped(note)
            for note in (*opened.notes, *by_log, *remarks, *contradictions, *placing.notes, *assembly.notes)
        ),
        quiet=_quiet(opened.ignored),
    )
    snapshot = Snapshot(
        job, assembly.rounds, opened.interval_s, assembly.records, assembly.ras, assembly.findings, account,
        assembly.got_on, assembly.stood, log_ends=assembly.log_ends, progress=assembly.progress,
    )  # fmt: skip
    return snapshot, with_seen(layout, assembly.records, assembly.ras)


def _stalled(job: Job, rounds: Sequence[Round], placed: Sequence[Placed]) -> tuple[Job, tuple[str, ...]]:
    """The job with the standstill that its logs state, and a note of that, where nobody else states one.

    Several looks show themselves what moves.
    """
    stated = [
        (one.content.stalled_s, one.name.path)
        for one in placed
        if isinstance(one.content, Logged) and one.content.stalled_s
    ]
    if job.stalled_s is not None or len(rounds) != 1 or not stated:
        return job, ()
    stalled_s, path = max(stated)
    note = f"{path} says that something was waited for in vain for {stalled_s:.0f} s: the job counts as standing still for as long"
    return replace(job, stalled_s=stalled_s), (note,)


def _placed(found: Sequence[Placed], declared: Layout) -> tuple[Layout, tuple[str, ...], Placing]:
    """Whose each piece of evidence is, by names, text and layout; the layout with the machines that folders tell."""
    layout, contradictions = with_folders(declared, found)
    parts, taken = by_rank(found, layout)
    placing = place(parts, layout)
    placing.notes[:0] = taken
    return layout, contradictions, placing


def _read_beside_stacks(placing: Placing) -> bool:
    return any(isinstance(placed.content, OWNERLESS) for placed in placing.placed)


def _nothing(
    path: str, ignored: list[str], unreadable: dict[str, str], last_errors: dict[str, str]
) -> UnreadableBundle:
    """The error of a bundle without evidence, with the first reasons; of a log that nobody understands, what it ends with."""
    what = [f"{_files(len(ignored))} without evidence"] if ignored else []
    what += [f'{name} says "{words}", which no reader knows' for name, words in list(last_errors.items())[:1]]
    what += [f"{name}: {reason}" for name, reason in list(unreadable.items())[:3]]
    what += [f"{len(unreadable) - 3} more are unreadable"] if len(unreadable) > 3 else []
    inside = "; ".join(what) or "it is empty"
    return UnreadableBundle(f"{path} holds no readable evidence ({inside})", _HINT, code="no-evidence")


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"
