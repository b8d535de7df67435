"""Healthy phases of all ranks, and jobs that simply train."""

from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position, asleep, device_wait, working
from worlds.timed.engine.steps import HostCollective, Kernel, Mark, Payload, Program, Run, Synchronise
from worlds.timed.jobs.job import Job
from worlds.timed.programs.phases import barrier
from worlds.timed.scenarios.duties import compiling
from worlds.timed.scenarios.scenario import BEGINS, ENDS, Scenario, Thread

#: Functions in which a kernel lets a writer wait for a healthy disk.
_WRITING = ("balance_dirty_pages", "folio_wait_bit_common", "rpc_wait_bit_killable", "cl_sync_io_wait")


class UnevenExperts(Scenario):
    """A mixture of experts: some ranks have more tokens than others, by turns."""

    def effort(self, rank: Rank, step: int) -> float:
        return self.job.rng(rank, f"tokens of {step}").choice((0.5, 0.7, 1.0, 1.0, 1.4, 2.6))


class Phase(Scenario):
    """All ranks do something behind a step; rank 0 marks when."""

    def __init__(self, kind: str, job: Job, rng: Random, seconds: tuple[float, float]) -> None:
        super().__init__(kind, job, rng)
        self.seconds = rng.uniform(*seconds)

    def at(self, rank: Rank, point: str, step: int) -> Program:
        if point != "after" or step != self.step:
            return
        if rank == 0:
            yield Mark(BEGINS)
        yield from self.work(rank)
        if rank == 0:
            yield Mark(ENDS)

    def work(self, rank: Rank) -> Program:
        """What a rank does."""
        raise NotImplementedError


class Checkpoint(Phase):
    """Each rank writes its shard, some longer than others, and all meet."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (40, 200))

    def work(self, rank: Rank) -> Program:
        rng = self.job.rng(rank, "shard")
        longer = 1.0 if rng.random() < 0.8 else 1.7
        at = Position(self.job.places["checkpoint_write"], "file_write", rng.choice("DSR"), rng.choice(_WRITING), 0.35)
        yield Run(rng.uniform(0.3, 0.6) * self.seconds * longer, at)
        yield from barrier(self.job, self.job.places["checkpoint_plan"])


class AsynchronousCheckpoint(Phase):
    """A thread of each rank writes while the job trains on."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (30, 120))

    def at(self, rank: Rank, point: str, step: int) -> Program:
        if point != "after" or step != self.step:
            return
        now, places = self.engine.now, self.job.places
        own = places.fill("{thread} write_async@code/ckpt/writer.py@64 ts.save ts._save")
        writes = places.get("writer_thread", own)
        ends = now + self.seconds * self.job.rng(rank, "writer").uniform(0.5, 1)
        self.threads.append(Thread(rank, now, ends, "AsyncCkpt", writes, "file_write"))
        if rank == 0:
            yield Mark(BEGINS)
            self.engine.clock.at(ends, lambda: self.engine.marks.append((ends, rank, ENDS)))


class Recompilation(Phase):
    """All ranks compile, at their first step or at a later one."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (40, 240))
        self.step = 0 if rng.random() < 0.5 else self.step

    def work(self, rank: Rank) -> Program:
        yield Run(self.seconds * self.job.rng(rank, "compile").uniform(0.7, 1), compiling(self.job))


class Autotuning(Phase):
    """All ranks measure variants of a kernel."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (20, 120))

    def work(self, rank: Rank) -> Program:
        rng, past = self.job.rng(rank, "tune"), 0.0
        base = f"{self.job.places['layer']} dyn.hook cmp.trun cmp.tune cmp.tunea"
        compiles = "CachingAutotuner._precompile_config@site/torch/_inductor/runtime/triton_heuristics.py@455"
        variants = (
            device_wait(f"{base} cmp.tuneb cu.sync", "device_sync"),
            working(f"{base} cmp.tuneb do_bench@site/triton/testing.py@149"),
            working(f"{base} {compiles} compile@site/triton/compiler/compiler.py@276"),
        )
        while past < self.seconds:
            lasts = rng.uniform(0.4, 1.2)
            yield Run(lasts, rng.choice(variants))
            past += lasts


class Validation(Phase):
    """All ranks validate."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (60, 60) if job.layout.world_size >= 64 else (60, 200))

    def work(self, rank: Rank) -> Program:
        rng, past, places = self.job.rng(rank, "validation"), 0.0, self.job.places
        waits = device_wait(places["evaluation"])
        while past < self.seconds:
            lasts, last = rng.uniform(0.15, 0.3), None
            for _ in range(3):
                last = yield Kernel(lasts / 3, working(f"{places['evaluation']} {places['module']} n.lin"), 0.004)
            yield Synchronise(waits, last)
            past += lasts
        yield from barrier(self.job, places["checkpoint_barrier"])


class Connecting(Scenario):
    """Communicators are set up, which takes NCCL long in large jobs."""

    starts_up = True

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        self.seconds = rng.uniform(15, 120)

    def set_up(self, rank: Rank) -> Program:
        places, rng = self.job.places, self.job.rng(rank, "build")
        if rank == 0:
            yield Mark(BEGINS)
        weights = ("", "_init_weights@code/model/build.py@29", "normal_@site/torch/nn/init.py@193")
        yield Run(rng.uniform(1, 4), working(f"{places['setup']} load_model@code/model/build.py@44", *weights))
        wraps = f"{places['setup']} wrap_model@code/model/build.py@71 d.initv u.verify"
        frames = places["index_barrier"] if self.job.name == "megatron" else wraps
        connects = asleep(frames, "nccl_init", 0.35, state="R", waits=True)
        yield HostCollective("world", Payload("init:communicator"), connects, self.seconds * 0.6)
        yield Run(rng.uniform(3, 20), connects)
        if rank == 0:
            yield Mark(ENDS)


class LongTail(Scenario):
    """One inference engine generates far longer answers than all others."""

    marks = ("generates", "generated")

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        self.seconds = rng.uniform(120, 500)
        self._engine_of = job.layout.sizes.get("tp", 1)
        self._slow = rng.randrange(job.layout.world_size // self._engine_of)

    def generation_s(self, rank: Rank, step: int) -> float:
        slow = step == self.step and rank // self._engine_of == self._slow
        return self.seconds if slow else super().generation_s(rank, step)


class Rewards(Scenario):
    """The driver scores answers for long, while all actors idle."""

    marks = ("scored", "rewarded")

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        self.seconds = rng.uniform(60, 400)

    def driver_s(self, phase: str) -> float:
        return self.seconds if phase == f"scored {self.step}" else super().driver_s(phase)
