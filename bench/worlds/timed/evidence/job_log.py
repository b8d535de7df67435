"""The logs of a job: its metrics, what a phase says of itself, and the lines of PyTorch's watchdogs."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.work import Recorded
from worlds.timed.evidence.frames import Installation
from worlds.timed.incident import Incident
from worlds.timed.layout import dimension
from worlds.timed.scenarios.scenario import BEGINS

#: The last steps that a log has.
_STEPS = 25
#: How frameworks write a step.
_STEP = {
    "megatron": " iteration {step:8}/  500000 | consumed samples: {samples:12} | elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.5E-04 | global batch size:  1024 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 0.412 | number of skipped iterations:   0 |",
    "fsdp": "[titan] step: {step:2}  loss: {loss:8.4f}  memory: 63.12GiB(79.75%)  tps: 6022  mfu: 41.17%",
    "transformers": "{{'loss': {loss:.4f}, 'grad_norm': 0.8215, 'learning_rate': 1.9e-05, 'epoch': 0.42}}",
}
_ANY_STEP = "step={step} loss={loss:.4f} dt={seconds:.2f}s"
#: What a phase says as it begins.
_PHASES = {
    "rank0-evaluation": "INFO eval: running downstream tasks on rank 0 (1319 samples)",
    "rank0-upload": "INFO uploading checkpoint step_{step} to s3://train-ckpt/ (211.4 GiB)",
    "checkpoint": "saving checkpoint at iteration {step:7} to /mnt/ckpt/run",
    "rank0-checkpoint": "saving checkpoint at iteration {step:7} to /mnt/ckpt/run",
    "asynchronous-checkpoint": "saving checkpoint at iteration {step:7} to /mnt/ckpt/run",
    "rank0-index": "> building dataset index ... only rank 0 works, others wait",
    "rank0-slow-log": "WARNING urllib3.connectionpool: Retrying (Retry(total=4, connect=5, read=4, redirect=5, status=5)) after connection broken by 'ReadTimeoutError(\"HTTPSConnectionPool(host='track.internal', port=443): Read timed out. (read timeout=30)\")': /api/2.0/mlflow/runs/log-batch",
    "licence": "INFO acme.licensing: checking out seat from lic.corp.internal:27000",
    "data-service": "WARNING acme.datasvc: deadline exceeded, retrying (attempt 2) endpoint=datasvc.feed.svc:7443",
}
#: The names of operations in the watchdog's lines.
_OPERATIONS = {
    "all_reduce": "ALLREDUCE",
    "_all_gather_base": "_ALLGATHER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
    "broadcast": "BROADCAST",
    "all_to_all": "ALLTOALL_BASE",
    "all_gather": "ALLGATHER",
}
#: So many ranks' lines are kept of a small and of a large job.
_SMALL, _LARGE = 24, 10


def write(incident: Incident, installation: Installation, folder: Path, time: float, epoch: int, rng: Random) -> None:
    """Writes a file for each rank that says something."""
    lines: defaultdict[Rank, list[tuple[float, str]]] = defaultdict(list)
    writer = incident.layout.ranks[-1 if incident.job.name == "megatron" else 0]
    lines[writer] += [(0.0, "NCCL version 2.21.5+cuda12.4"), *_metrics(incident, time, rng), *_phase(incident)]
    if incident.kind.name == "swallowed-exception" and rng.random() < 0.6:
        lines[incident.scene.ranks[0]] += _swallowed(incident, installation, time)
    place = folder / "logs"
    place.mkdir()
    watchdogs = dict(_watchdogs(incident, time, epoch))
    for rank in sorted({*lines, *watchdogs}):
        shown = [f"{_clock(epoch + at)} {words}" for at, words in sorted(lines[rank]) if at <= time]
        (place / f"rank{rank}.log").write_text("\n".join([*shown, *watchdogs.get(rank, [])]) + "\n", encoding="utf-8")


def _metrics(incident: Incident, time: float, rng: Random) -> Iterator[tuple[float, str]]:
    first = Random(f"{incident.job.seed} steps").randrange(100, 90000)
    ended = sorted(
        (max(times.values()), step)
        for step, times in incident.engine.step_times.items()
        if len(times) == incident.layout.world_size
    )
    before = 0.0
    for at, step in [(at, step) for at, step in ended if at <= time][-_STEPS:]:
        number, seconds = first + step, at - before
        words = _STEP.get(incident.job.name, _ANY_STEP)
        yield (
            at,
            words.format(
                step=number, samples=number * 1024, ms=seconds * 1000, loss=rng.uniform(1, 2.4), seconds=seconds
            ),
        )
        before = at


def _phase(incident: Incident) -> Iterator[tuple[float, str]]:
    words = _PHASES.get(incident.kind.name)
    begun = [at for at, _, name in incident.engine.marks if name == BEGINS]
    began = begun[0] if begun else incident.scene.began()
    if words is not None and began is not None:
        yield began, words.format(step=Random(incident.job.seed).randrange(100, 90000))


def _swallowed(incident: Incident, installation: Installation, time: float) -> Iterator[tuple[float, str]]:
    began = incident.scene.began()
    if began is None:
        return
    yield began, "WARNING robust: step failed, will retry (1)"
    where = installation.code("utils/robust.py")
    problem = (
        "RuntimeError: The size of tensor a (4096) must match the size of tensor b (4095) at non-singleton dimension 1"
    )
    yield (
        began,
        f'Traceback (most recent call last):\n  File "{where}", line 41, in safe_call\n    return fn(*args)\n{problem}',
    )
    for attempt in range(1, int(min(40, (time - began) / 10))):
        yield began + 10 * attempt, f"WARNING robust: step failed, will retry ({attempt + 1})"


def _watchdogs(incident: Incident, time: float, epoch: int) -> Iterator[tuple[Rank, list[str]]]:
    job, family = incident.job, incident.kind.family
    if job.name == "jax" or job.gloo or incident.scene.starts_up or family in ("healthy", "slow"):
        return
    left = _SMALL if job.layout.world_size <= 64 else _LARGE
    for rank in job.layout.ranks:
        host = incident.host(rank)
        if host.halted or incident.frozen(rank) or not left:
            continue
        late = [
            one
            for one in host.records
            if one.work.done is None
            and not one.on_host
            and one.work.started is not None
            and time - one.created > job.timeout_s + 1
        ]
        if late:
            left -= 1
            yield rank, _timed_out(incident, rank, late[0], epoch)


def _timed_out(incident: Incident, rank: Rank, one: Recorded, epoch: int) -> list[str]:
    job, group = incident.job, one.work.group
    operation = _OPERATIONS.get(one.payload.name.rpartition(":")[2], "COALESCED")
    if one.one_to_one:
        operation = "SEND" if "send" in one.payload.name else "RECV"
    of_group = [other for other in incident.host(rank).records if other.work.group == group and not other.one_to_one]
    newest = max((other.number for other in of_group), default=0)
    completed = max((other.number for other in of_group if other.work.done is not None), default=0)
    number, name = list(job.layout.groups).index(group), dimension(group)
    offset = Random(f"{job.seed} {group}").randrange(200, 9000) * 4
    at = (one.work.started or 0.0) + job.timeout_s
    whose = f"[PG ID {number} PG GUID {number}({'default_pg' if name == 'world' else name.upper()}) Rank {job.layout.groups[group].index(rank)}]"
    numel = [1, 1]
    for side, sizes in enumerate((one.payload.inputs, one.payload.outputs)):
        for size in sizes[0]:
            numel[side] *= size
    head, milliseconds = (
        f"[rank{rank}]:[E{_glog(epoch + at)} ProcessGroupNCCL.cpp:{685 if job.newer else 629}]",
        job.timeout_s * 1000,
    )
    return [
        f"{head} {whose} Watchdog caught collective operation timeout: WorkNCCL(SeqNum={offset + one.number}, OpType={operation}, NumelIn={numel[0]}, NumelOut={numel[1]}, Timeout(ms)={milliseconds}) ran for {milliseconds + 31} milliseconds before timing out.",
        f"{head} {whose}  failure detected by watchdog at work sequence id: {offset + one.number} PG status: last enqueued work: {offset + newest}, last completed work: {offset + completed}",
    ]


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S,%f}"[:-3]


def _glog(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%m%d %H:%M:%S.%f}000"
