"""torch.distributed.pipelining (Schedule1F1B) with DDP-like gradient reduction over the replicas of each stage."""

from accuracy.simulator.job import Job, Role
from accuracy.simulator.program import Mode, Writer

SCHEDULES = "torch/distributed/pipelining/schedules.py"
STAGE = "torch/distributed/pipelining/stage.py"
CALL = ("_wrapped_call_impl torch/nn/modules/module.py:1773", "_call_impl torch/nn/modules/module.py:1784")
NEXT_BATCH = (
    "__next__ torch/utils/data/dataloader.py:733", "_next_data torch/utils/data/dataloader.py:1515",
    "_get_data torch/utils/data/dataloader.py:1470",
)  # fmt: skip
ACTIVATION, GRADIENT = 2048 * 4096, 30_000_000
KERNELS, LAYER_S = 50, 0.008


def write(job: Job, role: Role) -> Writer:
    writer = Writer(role.slots)
    with writer.inside("<module> train_pp.py:188", "main train_pp.py:171"):
        for step in job.plan:
            writer.mark()
            if step == "save":
                with writer.inside("save train_pp.py:120", "save torch/serialization.py:964"):
                    writer.saves(4.0, "_save torch/serialization.py:1268")
                with writer.inside("save train_pp.py:124"):
                    writer.collective("world", "barrier", 1, 1e-4, mode=Mode.HOST)
            else:
                _step(writer, job, role, training=step != "eval")
    return writer


def _step(writer: Writer, job: Job, role: Role, *, training: bool) -> None:
    stage, stages, total = role.stage, job.stages, job.microbatches
    if stage in (0, stages - 1):
        writer.host("loader", 1e-3, "train train_pp.py:141", *NEXT_BATCH)
    warm = min(stages - stage - 1, total) if training else total
    name = "train train_pp.py:147" if training else "evaluate train_pp.py:158"
    with writer.inside(name, f"step {SCHEDULES}:{607 if training else 571}", f"_step_microbatches {SCHEDULES}:722"):
        for _ in range(warm):
            _talk(writer, stage, stages, up="r")
            _forward(writer, job, role)
            _talk(writer, stage, stages, down="s")
        if total > warm:
            _talk(writer, stage, stages, up="r")
        for number in range(warm, total):
            _forward(writer, job, role)
            _talk(writer, stage, stages, down="sr")
            _backward(writer, job)
            _talk(writer, stage, stages, up="s" if number == total - 1 else "sr")
        for _ in range(warm if training else 0):
            _talk(writer, stage, stages, down="r")
            _backward(writer, job)
            _talk(writer, stage, stages, up="s")
    if training:
        with writer.inside("train train_pp.py:150", "sync_gradients train_pp.py:96"):
            writer.collective("dp", "all_reduce", GRADIENT, 2e-3, dtype="Float")
        with writer.inside("train train_pp.py:152", "clip_grad_norm_ train_pp.py:104"):
            writer.collective("pp", "all_reduce", 1, 1e-4, dtype="Float")
        writer.kernels(20, 2e-3, "train train_pp.py:153", "step torch/optim/adamw.py:243")
    writer.read("train train_pp.py:155" if training else "evaluate train_pp.py:160")


def _talk(writer: Writer, stage: int, stages: int, up: str = "", down: str = "") -> None:
    peers = [(-1, way == "s", "") for way in up if stage > 0]
    peers += [(1, way == "s", "") for way in down if stage < stages - 1]
    if peers:
        with writer.inside(f"_batch_p2p {SCHEDULES}:476"):
            writer.p2p("pp", tuple(peers), ACTIVATION, handle="p2p")
        writer.wait("p2p", f"_wait_batch_p2p {SCHEDULES}:507")


def _forward(writer: Writer, job: Job, role: Role) -> None:
    with writer.inside(f"forward_one_chunk {STAGE}:700", f"forward_maybe_with_nosync {STAGE}:560", *CALL):
        for _ in range(job.layers):
            writer.kernels(KERNELS, LAYER_S, "forward train_pp.py:52")
    if role.stage == job.stages - 1:
        writer.kernels(4, 5e-4, f"_maybe_compute_loss {SCHEDULES}:318", "loss_fn train_pp.py:66")


def _backward(writer: Writer, job: Job) -> None:
    with writer.inside(
        f"backward_one_chunk {STAGE}:781", f"backward_maybe_with_nosync {STAGE}:645",
        "stage_backward torch/distributed/pipelining/_backward.py:366", "backward torch/autograd/__init__.py:354",
        "_engine_run_backward torch/autograd/graph.py:829",
    ):  # fmt: skip
        for _ in range(job.layers):
            writer.kernels(2 * KERNELS, 2 * LAYER_S)
