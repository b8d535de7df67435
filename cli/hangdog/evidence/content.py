"""Recognises a file by its content and reads it with the reader of its format."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from msgspec import structs

from hangdog.evidence.naming import Name
from hangdog_models.collectives import RankCounters, RasReport
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, LogEnd
from hangdog_models.progress.collective_progress import CollectiveProgress
from hangdog_models.ranks import Rank
from hangdog_models.reading import stated_stall
from hangdog_models.reading.collectives import (
    flight_recorder,
    inspector,
    nccl_diag,
    nccl_tests,
    plain_pickle,
    progress_json,
    ras_events,
    ras_json,
    ras_text,
)
from hangdog_models.reading.hardware import (
    amd_smi,
    dcgm,
    dcgm_table,
    findings_json,
    ib_ports,
    kernel_log,
    npu_smi,
    nvidia_smi,
    nvidia_smi_table,
    nvlink,
    pci_devices,
    rdma_link,
)
from hangdog_models.reading.json_document import looks_like_json, read_json
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.logs import (
    container_log,
    error_file,
    kubernetes_json,
    kubernetes_text,
    log_lines,
    log_process,
    training_log,
)
from hangdog_models.reading.logs.slurm import slurm_controller, slurm_text
from hangdog_models.reading.printable import decoded
from hangdog_models.reading.processes import proc_files, process_table, strace
from hangdog_models.reading.processes.listed_process import ListedProcess
from hangdog_models.reading.stacks import capture_failure, proc_status, pyspy, stack_text, stacks_in_log
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.reading.stacks.pasted import plain, unquoted
from hangdog_models.reading.wrapped import LARGEST, rejoined
from hangdog_models.stack import Frame, ProcessState

#: Bytes that must be enough to tell a format; a command line of a few KB may stand before py-spy's first thread.
_HEAD = 1 << 15
#: Characters at the end of a text in which an error is looked for, and of its line that is shown.
_TAIL, _ERROR_SHOWN = 1 << 18, 160
_ERROR = re.compile(
    r"(?i)(?:error|exception|fatal|fail(?:ed|ure)|panic|abort(?:ed)?|timed? ?out|killed|signal:? ?\d{1,2})\b"
)


@dataclass(frozen=True, slots=True)
class StackFile:
    """Stacks of one or several processes."""

    processes: tuple[DumpedProcess, ...]


@dataclass(frozen=True, slots=True)
class ListedProcesses:
    """What a tool says of processes without their stacks; which of them are ranks, the rest of the bundle tells."""

    rows: tuple[ListedProcess, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a capture failed, in the tool's words."""

    message: str


@dataclass(frozen=True, slots=True)
class Logged:
    """What logs and tools of a machine say: of a training log its processes, of the kernel and the GPU tools findings.

    `diagnosed` is what NCCL's diagnostics say, whose ranks are those in a communicator. `ends`: until when they go.
    `stalled_s`: for how many seconds the job had stood still, as its log states; None where it does not.
    """

    streams: tuple[training_log.Stream, ...] = ()
    findings: tuple[Finding, ...] = ()
    diagnosed: tuple[nccl_diag.DiagFinding, ...] = ()
    ends: tuple[LogEnd, ...] = ()
    stalled_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What NCCL RAS answered, once or several times."""

    reports: tuple[RasReport, ...]


@dataclass(frozen=True, slots=True)
class UnnamedRecord:
    """A flight recorder dump that does not tell whose it is; the rank in it means nothing."""

    record: RankCounters


@dataclass(frozen=True, slots=True)
class Inspected:
    """A dump of NCCL Inspector: the ranks of one process, which are those of the job only where somebody finds out."""

    ranks: tuple[inspector.InspectedRank, ...]


@dataclass(frozen=True, slots=True)
class Unused:
    """A file that is no evidence. `last_error`: the last line of a text that speaks of an error, which no reader understands."""

    last_error: str = ""


@dataclass(frozen=True, slots=True)
class RingFile:
    """How far the operations of one process have come; whose it is, only the file's name tells."""

    communicators: tuple[CollectiveProgress, ...]


Content = (
    StackFile
    | ProcessState
    | ListedProcesses
    | Failure
    | RankCounters
    | UnnamedRecord
    | Logged
    | ReadRequest
    | Inspected
    | RingFile
    | Unused
)
#: What tells of itself whose it is, or belongs to no rank: no file needs a rank in its name for it.
OWNERLESS = (Logged, ReadRequest)
#: What needs no rank in its name, for it says itself whose it is, or is of nobody.
SELF_NAMED = (*OWNERLESS, RankCounters)


def _dcgm(document: object, limits: Limits) -> tuple[Finding, ...]:
    return dcgm.read(document, limits) or dcgm.sound(document, limits)


def _dcgm_table(text: str, limits: Limits) -> tuple[Finding, ...]:
    return _dcgm(dcgm_table.read(text), limits)


#: Readers of what tools say of processes, which may stand in one text with each other, and with stacks.
_PROCESS_TEXTS = (
    (process_table.recognises, process_table.read),
    (strace.recognises, strace.read),
    (proc_files.recognises, proc_files.read),
)
#: Readers of what machines and clusters say by themselves: all that recognise a text read it.
_SYSTEM_TEXTS = (
    (amd_smi.recognises, amd_smi.read),
    (npu_smi.recognises, npu_smi.read),
    (dcgm_table.recognises, _dcgm_table),
    (kernel_log.recognises, kernel_log.read),
    (rdma_link.recognises, rdma_link.read),
    (ib_ports.recognises, ib_ports.read),
    (nvlink.recognises, nvlink.read),
    (pci_devices.recognises, pci_devices.read),
    (nccl_tests.recognises, nccl_tests.read),
    (slurm_text.recognises, slurm_text.read),
    (slurm_controller.recognises, slurm_controller.read),
    (kubernetes_text.recognises, kubernetes_text.read),
)


def read_contents(name: Name, data: bytes, limits: Limits) -> tuple[Content, ...]:
    """All that a file holds, which is one thing, but for a log into which a process has written its stacks.

    Raises UnreadableEvidence when it claims to be a format and is not. What a container's runtime wrote around the lines of
    its log is taken off, but for their times.
    """
    head = data[:_HEAD].decode("utf-8", "replace")
    if container_log.recognises_compose(head):
        return _contents(name, container_log.one_by_one(data.decode("utf-8", "replace"), limits).encode(), limits)
    if container_log.recognises(head):
        timed = container_log.joined(data.decode("utf-8", "replace"), limits)
        inside = _contents(name, container_log.plain(timed).encode(), limits)
        return tuple(_timed(content, name, timed, limits) for content in inside)
    return _contents(name, _as_printed(data), limits)


def _as_printed(data: bytes) -> bytes:
    """A text with its lines as a program printed them: a terminal may have broken those that somebody copied, or quoted."""
    head = data[:_HEAD]
    if (
        len(data) > LARGEST
        or b"\0" in head
        or plain_pickle.recognises(data)
        or looks_like_json(head.decode("utf-8", "replace"))
    ):
        return data
    text = data.decode("utf-8", "replace")
    whole = unquoted(rejoined(text))
    return data if whole == text else whole.encode()


def _timed(content: Content, name: Name, timed: str, limits: Limits) -> Content:
    if not isinstance(content, Logged) or not content.streams:
        return content
    return replace(content, streams=training_log.read(timed, name.rank, limits, name.local))


def _contents(name: Name, data: bytes, limits: Limits) -> tuple[Content, ...]:
    contents = _with_stacks(name, data, limits)
    table = _table_beside(contents, data, limits)
    if table is None:
        return contents
    return (*(one for one in contents if not isinstance(one, Unused)), table)


def _table_beside(contents: tuple[Content, ...], data: bytes, limits: Limits) -> ListedProcesses | None:
    """The processes that a text lists, in the order of its tools; None where it is a format of its own, or lists none."""
    if not all(isinstance(one, StackFile | Logged | Unused) for one in contents) or b"\0" in data[:_HEAD]:
        return None
    head = plain(data[:_HEAD].decode("utf-8", "replace"))
    readers = [read for recognises, read in _PROCESS_TEXTS if recognises(head)]
    text = plain(data.decode("utf-8", "replace")) if readers else ""
    rows = tuple(row for read in readers for row in read(text, limits))
    return ListedProcesses(rows) if rows else None


def _with_stacks(name: Name, data: bytes, limits: Limits) -> tuple[Content, ...]:
    content = _read_content(name, data, limits)
    if isinstance(content, StackFile):
        logged = _log_beside(name, data, limits)
        return (content, logged) if logged is not None else (content,)
    if not isinstance(content, Logged | Unused) or not stacks_in_log.may_hold(data) or b"\0" in data[:_HEAD]:
        return (content,)
    stacks = StackFile(stacks_in_log.read(plain(data.decode("utf-8", "replace")), name.rank, limits))
    if not stacks.processes:
        return (content,)
    dumps = b"(most recent call first):" in data  # an interrupt leaves the log what it is
    says_more = isinstance(content, Logged) and (content.streams or content.findings or content.diagnosed or not dumps)
    return (content, stacks) if says_more else (stacks,)


def _log_beside(name: Name, data: bytes, limits: Limits) -> Logged | None:
    """What a job said in the text that its stacks stand in; None where it is no log, or says nothing."""
    if b"\0" in data[:_HEAD] or looks_like_json(data[:_HEAD].decode("utf-8", "replace")):
        return None
    text = data.decode("utf-8", "replace")
    if not training_log.recognises(text):
        return None
    streams = training_log.read(text, name.rank, limits, name.local)
    return Logged(streams, stalled_s=stated_stall.read(text, limits)) if streams else None


def _read_content(name: Name, data: bytes, limits: Limits) -> Content:
    if name.path.endswith(".error.txt"):
        return Failure(data[: limits.text].decode("utf-8", "replace"))
    if plain_pickle.recognises(data):
        return _read_document(name, plain_pickle.read_pickle(data, limits), limits)
    head = data[:_HEAD].decode("utf-8", "replace").lstrip("\ufeff")
    if ras_events.recognises(head):
        return ReadRequest((ras_events.read(decoded(data, "the events of ncclras"), limits),))
    if inspector.recognises(head):
        dumps = inspector.read(decoded(data, "a dump of NCCL Inspector"), limits)
        return Inspected(tuple(replace(one, counters=replace(one.counters, age_s=name.age_s)) for one in dumps))
    if ras_json.recognises_text(head):
        return ReadRequest((ras_json.read_text(decoded(data, "the JSON of ncclras"), limits),))
    if looks_like_json(head) and not _is_json_lines(head):
        return _read_document(name, read_json(decoded(data, "JSON"), limits), limits)
    return _read_text(name, head, data, limits)


def _read_text(name: Name, head: str, data: bytes, limits: Limits) -> Content:
    if what := stack_text.form_of(head):
        return StackFile(stack_text.read(decoded(data, what), limits))
    if proc_status.recognises_status(head):
        return proc_status.read_status(decoded(data, "/proc/<pid>/status"), limits)
    if ras_text.recognises(head):
        return ReadRequest(ras_text.read(decoded(data, "the report of ncclras"), limits))
    if capture_failure.recognises(
        head
    ):  # the dump that failed lies where its output should: `py-spy dump ... > rank3.txt 2>&1`
        return Failure(head[: limits.text])
    if "\0" in head:  # a binary file, whatever words stand in it
        return Unused()
    text = data.decode("utf-8", "replace")  # a log may be cut in the middle of a letter
    of_job = training_log.recognises(text)
    asked = nvidia_smi.recognises(head)
    if asked and not of_job:
        return Logged(findings=nvidia_smi.read(text, limits))
    # One file may hold several: what the journal of a machine says, what the job printed, what its scheduler says.
    found = [read(text, limits) for recognises, read in _SYSTEM_TEXTS if recognises(head)]
    # The table that a job printed when it began is no evidence of its machine.
    if asked and not nvidia_smi_table.recognises(head):
        found.append(nvidia_smi.read(nvidia_smi.before_log(text), limits))
    diagnosed = nccl_diag.read(text, limits) if nccl_diag.recognises(text) else ()
    if not found and not of_job and not diagnosed:
        return Unused(_last_error(text))
    streams = training_log.read(text, name.rank, limits, name.local) if of_job else ()
    ends = tuple(end for end in _ends(text, head, of_job) if end is not None)
    stalled_s = stated_stall.read(text, limits) if of_job else None
    return Logged(streams, tuple(finding for findings in found for finding in findings), diagnosed, ends, stalled_s)


def _last_error(text: str) -> str:
    """The last line that speaks of an error, from the end of a text; empty where none does."""
    lines = (line.strip() for line in reversed(text[-_TAIL:].splitlines()))
    return next((" ".join(line[:_ERROR_SHOWN].split()) for line in lines if _ERROR.search(line)), "")


def _ends(text: str, head: str, of_job: bool) -> Iterator[LogEnd | None]:
    if kernel_log.recognises(head):
        yield kernel_log.end(text)
    if of_job and (at_s := log_lines.end(text)) is not None:
        yield LogEnd(log_process.SOURCE, "", at_s)


def _is_json_lines(head: str) -> bool:
    """Whether a text is a log whose lines are JSON objects of their own; Ray's events are such, however few there are."""
    return "}\n{" in head or "}\r\n{" in head or head.startswith('{"custom_fields":')


def shared(stacks: StackFile, seen: dict[tuple[Frame, ...], tuple[Frame, ...]]) -> StackFile:
    """The same stacks made of the frames in `seen` where equal ones were read before: most ranks stand where others do."""
    processes = tuple(
        replace(p, threads=tuple(structs.replace(t, frames=seen.setdefault(t.frames, t.frames)) for t in p.threads))
        for p in stacks.processes
    )
    return replace(stacks, processes=processes)


def _read_document(name: Name, document: object, limits: Limits) -> Content:
    """What a JSON document, or the plain data of a pickle, is."""
    if pyspy.recognises(document):
        return StackFile(pyspy.read(document, limits))
    if flight_recorder.recognises(document):
        if name.rank is None and not flight_recorder.names_rank(document):
            return UnnamedRecord(flight_recorder.read(document, Rank(0), limits))
        return replace(flight_recorder.read(document, name.rank, limits), age_s=name.age_s)
    if proc_status.recognises(document):
        return proc_status.read(document, limits)
    if ras_json.recognises(document):
        return ReadRequest((ras_json.read(document, limits),))
    if progress_json.recognises(document):
        return RingFile(progress_json.read(document, limits))
    if findings_json.recognises(document):
        return Logged(findings=findings_json.read(document, limits))
    if dcgm.recognises(document):
        return Logged(findings=_dcgm(document, limits))
    if amd_smi.recognises_document(document):
        return Logged(findings=amd_smi.read_document(document, limits))
    if kubernetes_json.recognises(document):
        return Logged(findings=kubernetes_json.read(document, limits))
    if error_file.recognises(document):
        return Logged(error_file.read(document, name.rank, name.local, limits))
    if name.path.endswith(".proc.json"):
        raise UnreadableEvidence("not a process state: pid and state are missing", code="damaged-process-state")
    return Unused()
