"""Faults of the code: collectives that do not match, locks, loops, exceptions that nobody sees."""

from dataclasses import replace
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position, asleep, device_wait, working
from worlds.timed.engine.steps import Collective, HostCollective, Payload, Program, Run, Synchronise
from worlds.timed.jobs.job import Job
from worlds.timed.programs.phases import SCALAR, barrier, gloo_wait
from worlds.timed.scenarios.scenario import Scenario, Thread
from worlds.timed.scenarios.stuck import Stuck, point_of

#: Loops of user code that never end: where, and what they call by turns.
_LOOPS = (
    ("pack_sequences@code/data/pack.py@64", ("", "<listcomp>@code/data/pack.py@66", "fits@code/data/pack.py@31")),
    (
        "bisect_threshold@code/losses/topk.py@48",
        ("", "Tensor.__lt__@site/torch/_tensor.py@37", "mid@code/losses/topk.py@22"),
    ),
    ("resample_until_valid@code/data/negatives.py@72", ("", "draw@code/data/negatives.py@39")),
)
#: Collectives of each framework that a rank may skip or call otherwise.
_TAGS = {
    "fsdp": ("gather 1", "gather 2"),
    "deepspeed": ("gather 1", "gather 2"),
    "megatron": ("gradients",),
    "jax": ("computation 1", "computation 2"),
    "ray": ("update 0 gather 1",),
}


class Mismatch(Scenario):
    """One rank, or two, skip a collective or call it with another size, type or operation."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        one = rng.choice(job.layout.ranks)
        pair = kind == "skipped-collective" and rng.random() < 0.25
        self.ranks = sorted({one, Rank((one + 1) % job.layout.world_size)}) if pair else [one]
        self._tag = rng.choice(_TAGS.get(job.name, ("bucket 0", "bucket 1")))
        alone = job.name == "megatron" and not job.layout.has("dp")
        if job.layout.has("tp") and (alone or (self._tag == "gradients" and rng.random() < 0.5)):
            self._tag = "tensor 1 2"
        self._more = rng.choice((512, 1024, 4096))

    def payload(self, rank: Rank, step: int, tag: str, payload: Payload) -> Payload | None:
        if rank not in self.ranks or step != self.step or tag != self._tag:
            return payload
        match self.kind:
            case "skipped-collective":
                return None
            case "other-size":
                (first, *rest), *others = payload.inputs
                return replace(payload, inputs=((first + self._more, *rest), *others))
            case "other-type":
                return replace(payload, dtype="BFloat16" if payload.dtype == "Float" else "Float")
        return replace(payload, name=f"{payload.name.partition(':')[0]}:broadcast")


class UnevenBatches(Scenario):
    """Some ranks run out of data and go to the end, where they wait for the others."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        many = max(1, job.layout.world_size // 8)
        self.ranks = sorted(rng.sample(job.layout.ranks, rng.choice((1, 1, 2, many))))

    def has_batch(self, rank: Rank, step: int) -> bool:
        return rank not in self.ranks or step < self.step

    def end(self, rank: Rank) -> Program:
        self.begin()
        yield from barrier(
            self.job,
            self.job.places.fill(f"{self.job.places['setup']} finish_epoch@code/utils/epoch.py@37 {{barrier}}"),
        )


class EvaluatesAlone(Scenario):
    """Rank 0 alone evaluates, and gathers its scores from all."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        self.ranks = [Rank(0)]

    def at(self, rank: Rank, point: str, step: int) -> Program:
        if rank or point != "after" or step != self.step:
            return
        self.begin()
        places = self.job.places
        yield Run(self.rng.uniform(1, 5), working(places["evaluation"]))
        dim = "dp" if self.job.name in ("fsdp", "deepspeed") else "world"
        if self.job.gloo:
            gathers = gloo_wait(places["evaluation_gather"])
            yield HostCollective(dim, Payload("gloo:all_reduce"), gathers, 0.01)
        else:
            gathers = device_wait(places["evaluation_gather"], "work_wait")
            work = yield Collective(dim, SCALAR, gathers, 0.001)
            yield Synchronise(gathers, work)


class CrossedGroups(Scenario):
    """Some ranks call the collectives of two groups in the other order."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        world = job.layout.world_size
        self._crossed = set(rng.sample(job.layout.ranks, rng.choice((1, world // 2, max(1, world // 4)))))

    def before(self, rank: Rank, step: int) -> Program:
        if step != self.step:
            return
        self.begin()
        places = self.job.places
        order = [("world", "sync_vocab@code/acme/net/mesh.py@131"), ("second", "sync_stats@code/acme/net/mesh.py@149")]
        size = ((8192,),)
        for dim, frame in reversed(order) if rank in self._crossed else order:
            frames = f"{places['step']} {frame}"
            if self.job.gloo:
                at = gloo_wait(f"{frames} {places['all_reduce']}")
                yield HostCollective(dim, Payload("gloo:all_reduce", size, size), at, 0.01)
            else:
                payload = Payload("nccl:all_reduce", size, size)
                work = yield Collective(dim, payload, working(f"{frames} {places['all_reduce']}"), 0.002)
                yield Synchronise(device_wait(f"{frames} cu.sync", "device_sync"), work)


class LockOrder(Stuck):
    """Two threads of one rank take two locks in opposite order."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        point = point_of(job, rng)
        takes = "observe@code/telemetry/registry.py@41 Registry.update@code/telemetry/registry.py@66"
        push = "MetricFlusher.push@code/telemetry/flush.py@39"
        at = asleep(f"{job.places.point(point)} {takes} {push}", "lock")
        super().__init__(kind, job, rng, [rng.choice(job.layout.ranks)], point, lambda rank: at)

    def at(self, rank: Rank, point: str, step: int) -> Program:
        if rank in self.affected and point == self.point and step == self.step:
            flushes = "MetricFlusher._loop@code/telemetry/flush.py@61 MetricFlusher._drain@code/telemetry/flush.py@74"
            frames = f"{self.job.places['thread']} {flushes} Registry.snapshot@code/telemetry/registry.py@58"
            self.threads.append(Thread(rank, self.engine.now, float("inf"), "metrics-flush", frames, "lock"))
        yield from super().at(rank, point, step)


def alone(kind: str, job: Job, rng: Random) -> Stuck:
    """User code of one rank never ends, or waits for what never comes."""
    one = Rank(0) if kind == "breakpoint" and rng.random() < 0.5 else rng.choice(job.layout.ranks)
    point = point_of(job, rng)
    base = job.places.point(point)
    match kind:
        case "swallowed-exception":
            at = asleep(f"{base} safe_call@code/utils/robust.py@47", "sleep", 0.01)
        case "breakpoint":
            pdb = "bdb.td bdb.dl pdb.uline pdb.inter pdb._cmd pdb.cmdloop"
            at = asleep(f"{base} check_nan@code/utils/debug.py@23 {pdb}", "terminal")
        case "empty-queue":
            at = asleep(f"{base} next_hint@code/data/curriculum.py@47 q.get th.wait", "lock")
        case _:
            child = "snapshot_env@code/utils/provenance.py@35 sub.run sub.com sub.pwait sub.wait sub.trywait"
            at = asleep(f"{base} {child}", "child_wait")
    return Stuck(kind, job, rng, [one], point, lambda rank: at)


def loop(kind: str, job: Job, rng: Random) -> Stuck:
    """User code of one rank, or of all, loops for ever."""
    point = point_of(job, rng)
    frames, inner = rng.choice(_LOOPS)
    at = Position(f"{job.places.point(point)} {frames}", gil=True, inner=inner)
    of_all = kind == "endless-loop-of-all"
    guilty = list(job.layout.ranks) if of_all else [rng.choice(job.layout.ranks)]
    stuck = Stuck(kind, job, rng, guilty, point, lambda rank: at, 0.05)
    if of_all:
        stuck.ranks = ()
    return stuck
