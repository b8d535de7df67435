"""Healthy phases of one rank: a duty of its own, for which the others wait or not."""

from collections.abc import Iterator
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position, asleep, working
from worlds.timed.engine.steps import Mark, Program, Run
from worlds.timed.jobs.job import Job
from worlds.timed.programs.phases import barrier
from worlds.timed.scenarios.scenario import BEGINS, ENDS, Scenario

#: What an evaluation on one rank computes, by turns.
_METRICS = (
    (
        "PreTrainedTokenizerBase.batch_decode@site/transformers/tokenization_utils_base.py@3811",
        "score@code/eval/metrics.py@88 corpus_bleu@site/sacrebleu/compat.py@36",
        "score@code/eval/metrics.py@88 normalize@code/eval/metrics.py@21",
    ),
    (
        "roc_auc_score@site/sklearn/metrics/_ranking.py@640 _binary_roc_auc_score@site/sklearn/metrics/_ranking.py@387",
        "<listcomp>@code/eval/bucketize.py@33",
        "groupby_slice@code/eval/bucketize.py@47 DataFrameGroupBy.agg@site/pandas/core/groupby/generic.py@1432",
    ),
    (
        "generate_samples@code/eval/sample.py@55 GenerationMixin.generate@site/transformers/generation/utils.py@2215",
        "extract_answer@code/eval/parse.py@17",
    ),
)
#: Who collects garbage between steps.
_COLLECTORS = (
    "GarbageCollection.run@site/torchtitan/tools/utils.py@49 GarbageCollection.collect@site/torchtitan/tools/utils.py@56",
    "maybe_collect@code/utils/memory.py@28",
    "on_step_end@code/callbacks/memory.py@19",
)
#: Clients of experiment trackers.
_TRACKERS = (
    "MlflowClient.log_batch@site/mlflow/tracking/client.py@1832 http_request@site/mlflow/utils/rest_utils.py@211",
    "Run.log@site/acme_metrics/client.py@77 _post@site/acme_metrics/http.py@31",
    "ClearLogger.report@site/internal_tracker/report.py@118",
)
#: What a compilation is seen in.
COMPILING = (
    "cmp.glrun",
    "cmp.gmod cmp.acw cf.result th.wait",
    "cmp.gmod Scheduler.__init__@site/torch/_inductor/scheduler.py@1842",
    "cmp.gmod PyCodeCache.load@site/torch/_inductor/codecache.py@2762",
)


class Duty(Scenario):
    """One rank is busy for `seconds` behind a step; with `meets` the others wait for it there."""

    def __init__(self, kind: str, job: Job, rng: Random, seconds: tuple[float, float], who: Rank | None = None) -> None:
        super().__init__(kind, job, rng)
        self.seconds = rng.uniform(*seconds)
        self.who = job.layout.ranks[0] if who is None else who
        self.meets = ""

    def at(self, rank: Rank, point: str, step: int) -> Program:
        if point != "after" or step != self.step:
            return
        if rank == self.who:
            yield Mark(BEGINS)
            yield from self.work()
            yield Mark(ENDS)
        else:
            yield from self.beside(rank)
        if self.meets:
            yield from barrier(self.job, self.meets)

    def work(self) -> Iterator[Run]:
        """What the rank does."""
        raise NotImplementedError

    def beside(self, rank: Rank) -> Program:
        """What the others do before they wait."""
        yield from ()


class Evaluation(Duty):
    """Rank 0 computes metrics in Python."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (90, 600))
        train = job.places["train"]
        own = f"{train} run_downstream_eval@code/eval/callback.py@61 evaluate_tasks@code/eval/harness.py@117"
        self._frames = job.places["metrics"] if "metrics" in job.places and rng.random() < 0.4 else own
        self._inner = rng.choice(_METRICS)
        own_barrier = job.places.fill(f"{train} run_downstream_eval@code/eval/callback.py@66 {{barrier}}")
        self.meets = own_barrier if job.name == "megatron" else _meeting(job, rng)

    def work(self) -> Iterator[Run]:
        yield Run(self.seconds, Position(self._frames, gil=True, inner=self._inner))


class Upload(Duty):
    """Rank 0 uploads a checkpoint, in parts."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (60, 420))
        base = f"{job.places['train']} upload_checkpoint@code/utils/s3.py@54"
        threads = asleep(f"{base} {job.places['s3_threads']}", "lock", 0.05)
        self._sends = threads if rng.random() < 0.5 else asleep(f"{base} {job.places['s3_put']}", "tls_write", 0.3)
        self._reads = Position(f"{base} read_part@code/utils/s3.py@37", "file_read")
        self.meets = _meeting(job, rng)

    def work(self) -> Iterator[Run]:
        yield from _by_turns(self.rng, self.seconds, (0.5, 6), self._sends, Run(0.1, self._reads))


class SlowLog(Duty):
    """The tracking service answers rank 0 late, again and again."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (60, 300))
        client = f"{job.places['log']} {rng.choice(_TRACKERS)}"
        self._client = Run(0.05, working(client))
        self._waits = asleep(f"{client} {job.places['request']}", "tls_read", 0.005)

    def work(self) -> Iterator[Run]:
        yield from _by_turns(self.rng, self.seconds, (2, 14), self._waits, self._client)


class Checkpoint(Duty):
    """Rank 0 writes the checkpoint."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (50, 240))
        self.meets = job.places["checkpoint_barrier"]

    def work(self) -> Iterator[Run]:
        yield Run(self.seconds, Position(self.job.places["checkpoint_write"], "file_write", cpu=0.5))


class Teardown(Checkpoint):
    """The last checkpoint is written, while the others already end."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        destroys = f"destroy_process_group@site/torch/distributed/distributed_c10d.py@{2388 if job.newer else 2146}"
        self.meets = f"{job.places['setup']} shutdown@code/utils/lifecycle.py@44 {destroys}"

    def beside(self, rank: Rank) -> Program:
        closes = "SummaryWriter.close@site/torch/utils/tensorboard/writer.py@1200"
        frames = f"{self.job.places['train']} {closes}"
        yield Run(self.job.rng(rank, "close").uniform(0, 0.4), working(frames))


class GarbageCollection(Duty):
    """One rank collects garbage."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (3, 25), rng.choice(job.layout.ranks))
        self._frames = f"{job.places['train']} {rng.choice(_COLLECTORS)}"

    def work(self) -> Iterator[Run]:
        yield Run(self.seconds, Position(self._frames, "gc", gil=True))


class CompilesAlone(Duty):
    """One rank compiles a graph anew, for a shape that only it has."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (40, 240), rng.choice(job.layout.ranks))

    def work(self) -> Iterator[Run]:
        yield Run(self.seconds, compiling(self.job))


class LongBatch(Duty):
    """One rank tokenises a batch that is far longer than the others'."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (15, 90), rng.choice(job.layout.ranks))

    def work(self) -> Iterator[Run]:
        frames = f"{self.job.places['step']} pack_document@code/data/pack.py@88"
        yield Run(self.seconds, working(frames, "", "split@code/data/pack.py@41", "encode@code/data/tokens.py@19"))


class Index(Duty):
    """Rank 0 builds the index of the data before the first step."""

    starts_up = True

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng, (90, 900))

    def at(self, rank: Rank, point: str, step: int) -> Program:
        yield from ()

    def set_up(self, rank: Rank) -> Program:
        if rank == 0:
            yield Mark(BEGINS)
            yield from self.work()
            yield Mark(ENDS)
        yield from barrier(self.job, self.job.places["index_barrier"])

    def work(self) -> Iterator[Run]:
        sorts = "np_sort@site/numpy/lib/_arraysetops_impl.py@312"
        yield Run(self.seconds, working(self.job.places["index"], "", sorts, "_write_index@code/data/index.py@57"))


def compiling(job: Job) -> Position:
    """A host that compiles."""
    if job.name == "jax":
        return Position(job.places["compile"], "xla_compile", cpu=1.6)
    return Position(f"{job.places['layer']} {job.places['torch_compile']}", cpu=1.6, inner=COMPILING)


def _meeting(job: Job, rng: Random) -> str:
    own = job.places.fill(f"{job.places['train']} wait_all@code/utils/sync.py@12 {{barrier}}")
    return job.places["checkpoint_barrier"] if job.name in ("jax", "ray") or rng.random() < 0.5 else own


def _by_turns(rng: Random, seconds: float, each: tuple[float, float], at: Position, between: Run) -> Iterator[Run]:
    past = 0.0
    while past < seconds:
        lasts = rng.uniform(*each)
        yield Run(lasts, at)
        yield between
        past += lasts
