"""What the ranks of a large hung job show: a crowd in each stage, jitter in a helper thread, one culprit, a few odd ones.

A Megatron job of tp 8 x pp 8 x dp; one rank waits for its data loader, the others for it in their collectives. Each rank has
`THREADS` threads: the main thread, and helpers that stand in one of a few places, as they do in recordings of real jobs.
"""

from random import Random

from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Thread

TENSOR, STAGES, PER_MACHINE = 8, 8, 8
#: Threads of a trainer that py-spy shows: the main one, autograd, pinning, prefetch, a watchdog, loggers.
THREADS = 9
#: Frames of a stack, in the middle of what real trainers show.
DEPTH = 28
#: Places in which a helper thread may be caught, and lines on which the main thread may be caught while all still runs.
HELPER_PLACES, LINES = 4, 40
C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
SCHEDULES = "/opt/venv/lib/python3.11/site-packages/megatron/core/pipeline_parallel/schedules.py"
CMDLINE = (
    "/opt/venv/bin/python -u pretrain_gpt.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --bf16"
)


class Job:
    """The stacks of one job of `ranks`; those of look `number` are the same every time they are asked for."""

    def __init__(self, ranks: int, seed: int) -> None:
        self.ranks = ranks
        self.culprit = ranks // 3
        self._seed = seed
        self._frames: dict[tuple[str, int], tuple[Frame, ...]] = {}

    @property
    def topology(self) -> str:
        return f"tp={TENSOR},dp={self.ranks // TENSOR // STAGES},pp={STAGES}"

    def machine(self, at: int, number: int, moving: bool) -> list[ProcessTrace]:
        """What machine `at` shows in look `number`; `moving`: the job trains, and every main thread is somewhere else."""
        draw = Random(f"{self._seed} {at} {number * moving}")
        first = at * PER_MACHINE
        return [self._rank(first + local, draw, number, moving) for local in range(PER_MACHINE)]

    def _rank(self, rank: int, draw: Random, number: int, moving: bool) -> ProcessTrace:
        pid = 20_000 + 1_000 * (rank % PER_MACHINE) + draw.randrange(100)
        place, line = self._place(rank), draw.randrange(LINES) if moving else 7
        threads = [Thread("MainThread", pid, self._stack(place, line), moving, False)]
        for helper in range(1, THREADS):
            at = draw.randrange(HELPER_PLACES) if draw.random() < 0.02 or moving else 0
            threads.append(Thread(f"helper-{helper}", pid + helper, self._stack(f"helper{helper}", at), at > 0, False))
        state = ProcessState(pid, "R" if moving else "S", "", "202", 3600.0 + rank + number, "python", CMDLINE)
        return ProcessTrace(Rank(rank), pid=pid, threads=tuple(threads), state=state)

    def _place(self, rank: int) -> str:
        if rank == self.culprit:
            return "loader"
        stage = rank // (self.ranks // STAGES)
        return "receive" if stage else "reduce"

    def _stack(self, place: str, line: int) -> tuple[Frame, ...]:
        known = self._frames.get((place, line))
        if known is None:
            outer = [Frame("<module>", "pretrain_gpt.py", 300), Frame("pretrain", "megatron/training/training.py", 400)]
            outer += [Frame(f"call_{at}", f"megatron/core/{place}_{at}.py", 10 * at) for at in range(DEPTH - 4)]
            inner = {
                "loader": [Frame("_next_data", "torch/utils/data/dataloader.py", 800), Frame("get", "queue.py", 180)],
                "receive": [Frame("recv_forward", SCHEDULES, 90), Frame("_communicate", "megatron/core/pipeline_parallel/p2p_communication.py", 300)],
                "reduce": [Frame("finish_grad_sync", "megatron/core/distributed/param_and_grad_buffer.py", 200), Frame("all_reduce", C10D, 2800)],
            }.get(place, [Frame("_bootstrap_inner", "threading.py", 1038), Frame("wait", "threading.py", 320)])  # fmt: skip
            inner[-1] = Frame(inner[-1].function, inner[-1].file, inner[-1].line + line)
            known = self._frames[place, line] = (*outer, *inner)
        return known
