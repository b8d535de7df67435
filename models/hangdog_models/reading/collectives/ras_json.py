"""Reads the JSON of `ncclras` (NCCL 2.28.7 and newer), and repairs the JSON of 2.28.9, which lacks commas."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from hangdog_models.collectives import RasCommunicator, RasMember, RasReport, RasStatus
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import MAX_RANK
from hangdog_models.reading.json_document import int_of, read_json, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits

_HEAD = re.compile(r'"nccl_version"\s*:|"communicators_count"\s*:')
#: PyTorch's flight recorder writes the version of NCCL, too.
_RECORDER = re.compile(r'"(?:pg_config|pg_status|entries)"\s*:')
#: A line that ends with a value, and a next one that begins with a key or an object: 2.28.9 forgets the comma between
#: them for each missing rank. A line break must lie there, so that no text inside quotes is touched.
_NO_COMMA = re.compile(r'(?<=[0-9"}\]el])[ \t]*(?=\r?\n\s{0,64}(?:"[A-Za-z_]{1,64}"\s{0,8}:|\{))')
_EXTRA_COMMA = re.compile(r",(?=\s{0,256}[}\]])")
#: ncclResult_t; what is not an error has no words.
_ERRORS = {
    1: "Unhandled CUDA error", 2: "System error", 3: "Internal error", 4: "Invalid argument", 5: "Invalid usage",
    6: "Remote process error",
}  # fmt: skip
_SUCCESS, _IN_PROGRESS = 0, 7


def recognises_text(head: str) -> bool:
    """Whether a text claims to be the report: the text before the document (RCCL's banner) does not count."""
    return _HEAD.search(head) is not None and _RECORDER.search(head) is None


def repaired(text: str) -> str:
    """The text as JSON: what stands before the document cut off, missing commas put in, superfluous ones taken out.

    Linear in the size of the text, and no longer than twice of it.
    """
    return _EXTRA_COMMA.sub("", _NO_COMMA.sub(",", text[max(0, text.find("{")) :]))


def read_text(text: str, limits: Limits = DEFAULTS) -> RasReport:
    """The report in a text, mended where it is no JSON: NCCL 2.28.9 forgets commas, RCCL writes its banner before it."""
    try:
        document = read_json(text, limits)
    except UnreadableEvidence:
        document = read_json(repaired(text), limits)
    return read(document, limits)


def recognises(document: object) -> bool:
    """Whether a JSON document is a report."""
    return isinstance(document, dict) and isinstance(document.get("communicators"), list)


def read(document: object, limits: Limits = DEFAULTS) -> RasReport:
    """The report; raises UnreadableEvidence where communicators or ranks are no objects."""
    if not isinstance(document, dict) or not recognises(document):
        raise UnreadableEvidence("not the JSON of ncclras: no list of communicators", code="damaged-nccl-report")
    communicators = tuple(_communicator(item, limits) for item in _objects(document["communicators"]))
    lost: dict[tuple[str, int | None], RasMember] = {}
    for communicator in communicators:
        for member in communicator.members:
            if member.status in (RasStatus.UNRESPONSIVE, RasStatus.DEAD):
                place = member.host, member.pid
                lost.setdefault(place, RasMember(-1, member.status, member.host, member.pid, member.device))
    return RasReport(communicators, tuple(lost.values()), _seconds(document.get("timestamp")))


def _communicator(item: Mapping[str, object], limits: Limits) -> RasCommunicator:
    size = int_of(item.get("size"))
    members = [_answered(member, limits) for member in _objects(item.get("ranks") or [])]
    members += [_missing(member, limits) for member in _objects(item.get("missing_ranks") or [])]
    name = text_of(item.get("hash"), limits).lower().removeprefix("0x")
    return RasCommunicator(
        name=name.zfill(16) if name else "",
        size=size if size is not None and 0 <= size <= MAX_RANK else 0,
        members=tuple(sorted(members, key=lambda member: member.number)),
    )


def _answered(item: Mapping[str, object], limits: Limits) -> RasMember:
    status = _object(item.get("status"))
    init, later = int_of(status.get("init_state")), int_of(status.get("async_error"))
    failed = next((code for code in (init, later) if code not in (None, _SUCCESS, _IN_PROGRESS)), None)
    if status.get("abort_flag") is True:
        state = RasStatus.ABORT
    elif status.get("finalize_called") is True or status.get("destroy_flag") is True:
        state = RasStatus.FINALIZE
    elif failed is not None:
        state = RasStatus.ERROR
    else:
        state = RasStatus.INIT if init == _IN_PROGRESS else RasStatus.RUNNING
    counts = ((text_of(kind, limits), int_of(n)) for kind, n in _object(item.get("collective_counts")).items())
    launched = {kind: number for kind, number in counts if number is not None and number >= 0}
    error = "" if failed is None else _ERRORS.get(failed, f"error {failed}")
    return _member(item, state, launched, error, limits)


def _missing(item: Mapping[str, object], limits: Limits) -> RasMember:
    """A rank nobody answered for: dead, without an answer, or a process that knows no such communicator."""
    status = _object(item.get("status"))
    if status.get("considered_dead") is True:
        state = RasStatus.DEAD
    else:
        state = RasStatus.UNRESPONSIVE if status.get("unresponsive") is True else RasStatus.UNKNOWN
    return _member(item, state, {}, "", limits)


def _member(
    item: Mapping[str, object], status: RasStatus, launched: dict[str, int], error: str, limits: Limits
) -> RasMember:
    number, pid = int_of(item.get("rank")), int_of(item.get("pid"))
    if number is None or not 0 <= number <= MAX_RANK:
        raise UnreadableEvidence("not the JSON of ncclras: a member without a rank", code="damaged-nccl-report")
    host = text_of(item.get("host"), limits)
    device = int_of(item.get("nvml_dev", item.get("cuda_dev")))
    return RasMember(
        number, status, "" if host == "unknown" else host, pid if pid is not None and pid > 0 else None,
        device if device is not None and device >= 0 else None, launched, error,
    )  # fmt: skip


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, dict):
            raise UnreadableEvidence(
                "not the JSON of ncclras: a communicator or a rank is no object", code="damaged-nccl-report"
            )
        yield item


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _seconds(value: object) -> float | None:
    """The time of the report, written as the host's local time: taken as UTC, good enough to put reports in order."""
    try:
        return (
            datetime.strptime(value, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
            if isinstance(value, str)
            else None
        )
    except ValueError:
        return None
