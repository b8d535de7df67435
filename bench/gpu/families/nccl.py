"""Real NCCL jobs of several ranks on one GPU, watched by real agents: healthy phases, and faults of each kind."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpu.cluster import MACHINE, Cluster
from gpu.families import profiler
from gpu.job import PATIENCE_S, TICK_S, Job
from gpu.kit import Measured, Part, Stand
from gpu.processes import Children
from hangdog_agent.capture import pyspy, ras, ring_statement
from hangdog_agent.capture.flight_recorder import recorder
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses, find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.procfs import Proc
from hangdog_models.errors import OurFault
from hangdog_models.incident import Incident
from hangdog_models.verdict import Kind, Verdict
from hangdog_models.views.first_line import headline
from hangdog_proto.codec.collectives import Statement

#: Training before anything happens, so that the ranks have a rhythm. Seconds.
TRAINED_S = 13.0
#: A fault is waited for so long. Seconds: more than a spinning rank is borne.
JUDGED_S = 90.0
#: The rank that a fault strikes: not the first one, for much is special about that.
VICTIM = 1


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to the victim of a running job. `guilty`: a machine is; `undo` lets the job go on, None: nothing does."""

    name: str
    strike: Callable[[Job], None]
    guilty: bool
    undo: Callable[[Job], None] | None = None
    #: What the ranks' environment has for it.
    environ: Mapping[str, str] = field(default_factory=dict)
    #: Whether NCCL loads hangdog's profiler plug-in in the ranks.
    profiled: bool = False


def _hang_device(job: Job) -> None:
    (job.folder / "released").unlink(missing_ok=True)
    job.order("device_hang", [VICTIM])


def _stall_loader(job: Job) -> None:
    """Its data come from a file that nobody writes: the loader waits, and soon its trainer waits for the loader."""
    os.mkfifo(job.folder / f"fifo-{VICTIM}")


def _serve_loader(job: Job) -> None:
    end = os.open(job.folder / f"fifo-{VICTIM}", os.O_WRONLY | os.O_NONBLOCK)
    os.close(end)


LOADER = Fault("loader waits for a file", _stall_loader, True, _serve_loader)
STOPPED = Fault(
    "process stopped",
    lambda job: job.signal(VICTIM, signal.SIGSTOP),
    True,
    lambda job: job.signal(VICTIM, signal.SIGCONT),
)
DEVICE = Fault("device hangs", _hang_device, True, lambda job: (job.folder / "released").touch())
#: The recorder then tells whether the device has begun a collective.
TIMED_DEVICE = replace(DEVICE, name="device hangs, collectives timed", environ={"TORCH_NCCL_ENABLE_TIMING": "1"})
#: As most jobs run: no recorder, and RAS by itself.
BARE = {"TORCH_FR_BUFFER_SIZE": "0", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": ""}
BARE_DEVICE = replace(DEVICE, name="device hangs, no recorder", environ=BARE)
#: The same, with hangdog's profiler plug-in in each rank: it tells what the device has begun.
RING_DEVICE = replace(BARE_DEVICE, name="device hangs, profiler ring", profiled=True)
KILLED = Fault("process killed", lambda job: job.signal(VICTIM, signal.SIGKILL), True)
SKIPPED = Fault("collective skipped", lambda job: job.order("skip", [VICTIM]), False)
RESIZED = Fault("collective of another size", lambda job: job.order("resize", [VICTIM]), False)
#: What a healthy job does between steps, who does it, and how long it lasts at most. Seconds.
DUTIES = {"evaluate": ([0], 15.0), "checkpoint": ([0], 15.0), "compile": (None, 60.0)}


def parts(stand: Stand) -> Iterator[Part]:
    """One job each: a standstill that a job survived makes its agents patient."""
    some = 2 if stand.dry else 4
    yield Part(f"nccl/{some} ranks, healthy", 85.0, lambda stand: _play(stand, some, None))
    for fault in (STOPPED, DEVICE, LOADER, KILLED, SKIPPED, RESIZED):
        yield _part(some, fault)
    if not stand.dry:  # so many processes do not fit on two cores
        yield from (_part(some, BARE_DEVICE), _part(some, RING_DEVICE), _part(8, STOPPED), _part(2, TIMED_DEVICE))


def _part(world: int, fault: Fault) -> Part:
    return Part(f"nccl/{world} ranks, {fault.name}", 85.0, lambda stand: _play(stand, world, fault))


@dataclass(slots=True)
class Played:
    """What was seen of one job so far."""

    figures: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def _play(stand: Stand, world: int, fault: Fault | None) -> Measured:
    """One job: it trains, then it does its duties, or a fault strikes."""
    name = f"{world}-{fault.name if fault else 'healthy'}".replace(" ", "-")
    folder, seen = stand.folder(f"nccl-{name}"), Played()
    with Children(folder) as children:
        job = Job(stand, children, folder, world, _environ(fault, folder))
        try:
            with Cluster(stand, children, folder, job.machines) as cluster:
                began = time.monotonic()
                job.start()
                seen.figures["first steps after s"] = round(time.monotonic() - began, 1)
                _train(job, seen)
                if fault is None:
                    _ask(stand, job, name, seen.figures)
                    _duties(job, seen)
                _peace(cluster, job, seen)
                if fault is not None:
                    _break(stand, cluster, job, fault, name, seen)
        except OurFault as error:
            seen.wrong.append(f"broken off: {str(error)[:1500]}")
        finally:
            _keep_logs(stand, folder, name)
    return Measured(seen.figures, seen.wrong)


def _environ(fault: Fault | None, folder: Path) -> Mapping[str, str]:
    """What the ranks' environment has for a fault; the plug-in is built where the job begins."""
    if fault is None or not fault.profiled:
        return fault.environ if fault else {}
    plugin = folder / profiler.BUILT.name
    profiler.compiled(profiler.SOURCE, plugin, "-shared", "-fPIC", "-fvisibility=hidden")
    return {**fault.environ, "NCCL_PROFILER_PLUGIN": str(plugin.resolve())}


def _train(job: Job, seen: Played) -> None:
    before, began = min(job.steps()), time.monotonic()
    job.train(TRAINED_S)
    steps = min(job.steps()) - before
    seen.figures["s a step"] = round((time.monotonic() - began) / max(1, steps), 3)


def _duties(job: Job, seen: Played) -> None:
    """Each duty once; a duty that the job cannot do here is told."""
    for duty, (ranks, most_s) in DUTIES.items():
        began = time.monotonic()
        job.order(duty, ranks if ranks is not None else range(job.world))
        job.goes_on(most_s + PATIENCE_S)
        seen.figures[f"{duty} s"] = round(time.monotonic() - began, 1)
    job.train(10.0)


def _peace(cluster: Cluster, job: Job, seen: Played) -> None:
    """Nothing was to be suspected so far."""
    incidents = cluster.incidents(job.name)
    seen.figures["agents"] = cluster.machines()
    seen.figures["suspected while healthy"] = len(incidents)
    seen.wrong += [f"healthy, and an incident: {one.why} {one.kind} {' '.join(one.evict)}" for one in incidents]


def _break(stand: Stand, cluster: Cluster, job: Job, fault: Fault, name: str, seen: Played) -> None:
    before = {one.id for one in cluster.incidents(job.name)}
    struck = time.time()  # noqa: TID251 - compared with the server's times
    fault.strike(job)
    until = time.monotonic() + JUDGED_S
    found: Incident | None = None
    while found is None and time.monotonic() < until:
        time.sleep(3 * TICK_S)
        found = next((one for one in cluster.incidents(job.name) if one.id not in before and one.kind), None)
    judged = time.time()  # noqa: TID251 - likewise
    stood = job.last_step_at()
    seen.figures["stood after s"] = round(stood - struck, 1)
    if found is None:
        opened = [one.why for one in cluster.incidents(job.name) if one.id not in before]
        seen.wrong.append(f"no verdict within {JUDGED_S:.0f} s (incidents: {opened or 'none'})")
    else:
        incident, verdict = cluster.client().incident(found.id)
        seen.figures |= _told(incident, verdict, stood, judged)
        seen.wrong += _missed(fault, verdict)
    _ask(stand, job, name, seen.figures)
    if found is not None and stand.record:
        _keep_bundle(stand, cluster, found.id, name)
    if fault.undo is not None:
        fault.undo(job)
        began = time.monotonic()
        job.goes_on()
        seen.figures["went on after s"] = round(time.monotonic() - began, 1)


def _told(incident: Incident, verdict: Verdict | None, stood: float, judged: float) -> dict[str, Any]:
    told: dict[str, Any] = {
        "suspected after s": round(incident.began - stood, 1),
        "judged s later": round(judged - incident.began, 1),
        "by": incident.why.removeprefix("suspected: ")[:160],
    }
    if verdict is None:
        return told
    return told | {
        "verdict": headline(verdict),
        "suspects": [f"{one.probability:.0%} {' '.join(one.machines)}" for one in verdict.suspects[:3]],
        "evicts": list(verdict.evict.machines),
        "because": [one.text for one in verdict.because[:3]],
        "causes": {str(cause): round(share, 2) for cause, share in verdict.causes.items() if share > 0.02},
        "evidence": list(verdict.evidence.notes[:6]),
    }


def _missed(fault: Fault, verdict: Verdict | None) -> Iterator[str]:
    """What is wrong with a verdict: somebody innocent is evicted, or the victim, or the software, is not suspected first."""
    if verdict is None:
        yield "no verdict"
        return
    guilty = {f"node-{VICTIM}"} if fault.guilty else set()
    if innocent := set(verdict.evict.machines) - guilty:
        yield f"evicts {' '.join(sorted(innocent))}"
    if verdict.crash is not None:
        first = {verdict.crash.machine} if verdict.crash.machine else set()
    else:
        first = set(verdict.suspects[0].machines) if verdict.suspects else set()
    if not fault.guilty and verdict.kind is not Kind.SOFTWARE:
        yield f"it says {verdict.kind}, and the software is at fault"
    if fault.guilty and first != guilty:
        yield f"the first suspect is {' '.join(sorted(first)) or 'nobody'}, not node-{VICTIM}"


def _ask(stand: Stand, job: Job, name: str, figures: dict[str, Any]) -> None:
    """What recorders and RAS answer just now, how long they take, and keeps it as it came."""
    raw = stand.out / "raw" / name
    raw.mkdir(parents=True, exist_ok=True)
    tools = Tools(Proc(), pyspy.load(), CaptureSettings(), threading.Event())
    pids = {process.pid for process in job.ranks.values()}
    found = find(ProcessTable(Proc(), frozenset([MACHINE])).take())
    members = [one for one in found if one.kind is ProcessRole.TRAINER and one.process.pid in pids]
    _statement(
        figures, "RAS", [one for one in members if one.rank != VICTIM][:1], lambda one: ras.report(one, tools), raw
    )
    _statement(figures, "recorder", members, lambda one: recorder.record(one, tools), raw)
    rings = {one.rank: ring for one in members if (ring := ring_statement.progress(one, tools)) is not None}
    if rings:
        figures["rings"] = f"{sum(ring.missing is None for ring in rings.values())} of {len(members)}"
    for rank, ring in rings.items():
        (raw / f"ring-rank{rank}.progress.json").write_bytes(ring.data)
    for dump in job.folder.glob("fr_*"):  # what torch wrote by itself, too
        shutil.copy(dump, raw)


def _statement(
    figures: dict[str, Any],
    name: str,
    members: Sequence[RankProcesses],
    ask: Callable[[RankProcesses], Statement],
    raw: Path,
) -> None:
    answers, seconds, silent = 0, [], []
    for member in members:
        began = time.monotonic()
        answer = ask(member)
        seconds.append(time.monotonic() - began)
        if answer.missing is None:
            answers += 1
            (raw / f"{name}-rank{member.rank}").write_bytes(answer.data)
        else:
            silent.append(f"rank {member.rank}: {answer.missing.message[:120]}")
    figures[f"{name} answers"] = f"{answers} of {len(members)}, {max(seconds, default=0):.2f} s at most"
    if silent:
        figures[f"{name} silent"] = silent[:2]


def _keep_bundle(stand: Stand, cluster: Cluster, incident: str, name: str) -> None:
    place = stand.out / "bundles" / name
    shutil.rmtree(place, ignore_errors=True)
    command = (stand.python, "-P", "-m", "hangdog", "bundle", incident, "-o", place, "--server", cluster.address)
    subprocess.run(command, check=False, timeout=30.0, stdout=subprocess.DEVNULL)


def _keep_logs(stand: Stand, folder: Path, name: str) -> None:
    """The beginning and the end of each process's log."""
    place = stand.out / "logs" / name
    place.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        text = log.read_bytes()
        (place / log.name).write_bytes(text if len(text) < 24000 else text[:12000] + b"\n...\n" + text[-12000:])
