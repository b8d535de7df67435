"""Writes what was judged as the files of an evidence bundle, in the very formats that opening one reads."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from hangdog.evidence.naming import name_of
from hangdog_models.collectives import INSPECTOR
from hangdog_models.diagnosis.findings import first_exits
from hangdog_models.errors import HangdogError
from hangdog_models.ranks import format_ranks
from hangdog_models.reading.collectives import plain_pickle
from hangdog_models.reading.hardware import findings_json
from hangdog_models.reading.printable import printable
from hangdog_models.reading.stacks.capture_failure import written
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import TRAINER, Frame, Missing, ProcessTrace, Reason, Thread
from hangdog_models.topology import Layout, build
from hangdog_proto.codec.collectives import StatementKind
from hangdog_server.incidents.replay import Replayed

#: Names that may stand in a path as they are.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,100}")
#: What stands for a trace of which nothing at all is known.
_NOTHING = Missing(Reason.NO_EVIDENCE, "nothing was told of it")

File = tuple[str, bytes]


def files(incident: Replayed, remarks: Iterable[str] = ()) -> Iterator[File]:
    """The files of a bundle, each with its path below the root; `remarks` are for people who look into `job.toml`."""
    snapshot = incident.snapshot
    yield "job.toml", _job(snapshot, incident.layout, remarks).encode("utf-8", "replace")
    if snapshot.interval_s is not None:
        yield "rounds.toml", f"interval_s = {float(snapshot.interval_s)!r}\n".encode()
    # how trainers ended has no file of its own: what it says stands among the findings
    topology, _ = build(incident.layout, snapshot.highest_rank())
    found = first_exits.with_first_failure(snapshot, topology).findings
    findings = tuple(one for one in found if one.source != INSPECTOR)  # which its dumps beside them show
    if findings:
        yield "findings.json", _json(findings_json.written(findings))
    for round_ in snapshot.rounds:
        for trace in round_.traces:
            yield from _trace(f"round-{round_.number}/{_process(trace)}", trace)
    machines: dict[str, int] = {}
    for one in incident.counted:
        kept = f".written-{one.age_s}s-before" if one.age_s else ""
        if one.kind is StatementKind.PROGRESS:
            yield f"rank{one.rank}.progress.json", one.data
        elif one.kind is StatementKind.INSPECTOR:
            yield f"rank{one.rank}.inspector{kept}.log", one.data
        elif one.rank is not None:
            kind = "pickle" if plain_pickle.recognises(one.data) else "json"
            yield f"rank{one.rank}.flight{kept}.{kind}", one.data
        else:  # one folder a machine: reports of several machines at one moment are read as one
            number = machines.setdefault(one.machine, len(machines))
            folder = one.machine if _PLAIN.fullmatch(one.machine) else f"without-a-plain-name-{number}"
            yield f"machine-{folder}/ras.txt", one.data


def _process(trace: ProcessTrace) -> str:
    """The file name, without its suffix, of one process: a role that a path cannot tell is replaced, by the same in every look."""
    plain = f"rank{trace.rank}" if trace.role == TRAINER else f"rank{trace.rank}.{trace.role}"
    try:
        parsed = name_of(f"{plain}.json")
        if _PLAIN.fullmatch(plain) and (parsed.rank, parsed.role) == (trace.rank, trace.role):
            return plain
    except HangdogError:
        pass
    return f"rank{trace.rank}.process-{blake2b(trace.role.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def _trace(path: str, trace: ProcessTrace) -> Iterator[File]:
    if trace.threads:
        yield f"{path}.json", _json([_thread(trace.pid, thread) for thread in trace.threads])
    state, missing = trace.state, trace.missing
    if state is not None and state.pid > 0 and state.state:
        yield f"{path}.proc.json", _json(msgspec.to_builtins(state))
    if missing is None and not trace.threads:
        missing = _NOTHING
    if missing is not None:
        yield f"{path}.error.txt", written(missing).encode("utf-8", "replace")


def _thread(pid: int | None, thread: Thread) -> dict[str, Any]:
    """A thread as `py-spy dump --json` writes it: frames from the innermost outwards."""
    return {
        "pid": pid,
        "thread_id": thread.tid,
        "thread_name": thread.name,
        "os_thread_id": thread.tid,
        "active": thread.active,
        "owns_gil": thread.gil,
        "frames": [_frame(frame) for frame in reversed(thread.frames)],
        "process_info": None,
    }


def _frame(frame: Frame) -> dict[str, Any]:
    fields = {
        "name": frame.function,
        "filename": frame.file,
        "module": frame.module,
        "short_filename": frame.file,
        "line": frame.line,
        "locals": None,
    }
    return fields | {"native": True} if frame.module == "" else fields  # of a library that nobody could name


def _job(snapshot: Snapshot, layout: Layout, remarks: Iterable[str]) -> str:
    unknown = [dim for dim in layout.sizes if dim not in layout.order]
    lines = [f"# {printable(remark)}" for remark in (*remarks, *snapshot.account.notes)]
    lines += ["[job]", f"id = {_quoted(snapshot.job.id)}"]
    if layout.world_size is not None:
        lines.append(f"world_size = {layout.world_size}")
    if snapshot.job.framework:
        lines.append(f"framework = {_quoted(snapshot.job.framework)}")
    if snapshot.job.stalled_s is not None:
        lines.append(f"stalled_s = {float(snapshot.job.stalled_s)!r}")
    lines += ["", "[topology]", f"order = {_quoted('-'.join((*layout.order, *unknown)))}"]
    lines += [f"{_quoted(dim)} = {size}" for dim, size in layout.sizes.items()]
    if layout.ranks_per_machine is not None:
        lines.append(f"gpus_per_node = {layout.ranks_per_machine}")
    groups = {dim: [format_ranks(ranks) for ranks in sets] for dim, sets in layout.groups.items()}
    machines = {name: format_ranks(ranks) for name, ranks in layout.machines.items()}
    switches = {name: list(inside) for name, inside in layout.switches.items()}
    for title, table in (("groups", groups), ("machines", machines), ("switches", switches)):
        if table:
            lines += ["", f"[{title}]", *_table(table)]
    return "\n".join(lines) + "\n"


def _table(table: Mapping[str, str | list[str]]) -> Iterator[str]:
    for name, value in table.items():
        written_value = _quoted(value) if isinstance(value, str) else f"[{', '.join(map(_quoted, value))}]"
        yield f"{_quoted(name)} = {written_value}"


def _quoted(text: str) -> str:
    """A text as TOML writes it: JSON's escapes, but for DEL, which TOML wants escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _json(document: object) -> bytes:
    return json.dumps(document).encode()
