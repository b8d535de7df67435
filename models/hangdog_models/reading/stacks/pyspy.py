"""Reads the JSON of `py-spy dump --json`, with or without native frames."""

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import bool_of, int_of, read_json, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import DumpedProcess, check_frames, check_threads, installed_path
from hangdog_models.stack import Frame, Thread


def recognises(document: object) -> bool:
    """Whether a JSON document is a list of threads with frames."""
    return (
        isinstance(document, list) and bool(document) and all(isinstance(t, dict) and "frames" in t for t in document)
    )


def read(document: object, limits: Limits = DEFAULTS) -> tuple[DumpedProcess, ...]:
    """The processes of a dump, in the order of their first thread (py-spy lists the newest thread of a process first)."""
    if not recognises(document):
        raise UnreadableEvidence(
            "not the JSON of py-spy dump: no list of threads with frames", code="damaged-stack-dump"
        )
    assert isinstance(document, list)
    check_threads(len(document), limits)
    threads: dict[int | None, list[Thread]] = {}
    for thread in document:
        threads.setdefault(int_of(thread.get("pid")), []).append(_thread(thread, limits))
    return tuple(DumpedProcess(pid, tuple(found)) for pid, found in threads.items())


def threads_from_json(text: str, limits: Limits = DEFAULTS) -> tuple[Thread, ...]:
    """All threads of a dump given as text, frames outermost first; raises UnreadableEvidence."""
    return tuple(thread for process in read(read_json(text, limits), limits) for thread in process.threads)


def _thread(thread: dict[str, object], limits: Limits) -> Thread:
    frames = thread["frames"]
    if not isinstance(frames, list):
        raise UnreadableEvidence(
            "not the JSON of py-spy dump: the frames of a thread are no list", code="damaged-stack-dump"
        )
    check_frames(len(frames), limits)
    tid = int_of(thread.get("os_thread_id"))  # null where py-spy could not match the thread to a kernel task
    return Thread(
        name=text_of(thread.get("thread_name"), limits) or None,
        tid=tid if tid is not None else int_of(thread.get("thread_id")) or 0,
        frames=tuple(_frame(frame, limits) for frame in reversed(frames)),
        active=bool_of(thread.get("active")),
        gil=bool_of(thread.get("owns_gil")),
    )


def _frame(frame: object, limits: Limits) -> Frame:
    if not isinstance(frame, dict) or not isinstance(frame.get("name"), str):
        raise UnreadableEvidence("not the JSON of py-spy dump: a frame without a name", code="damaged-stack-dump")
    return Frame(
        function=text_of(frame["name"], limits),
        file=installed_path(text_of(frame.get("filename"), limits), text_of(frame.get("short_filename"), limits)),
        line=max(0, int_of(frame.get("line")) or 0),
        # hangdog marks native frames of a library that nobody could name
        module=text_of(frame.get("module"), limits) or ("" if frame.get("native") is True else None),
    )
