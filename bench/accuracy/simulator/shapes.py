"""Draws the shape of a job: framework, parallel sizes, order, machines, switches and how its hosts behave."""

from random import Random

from accuracy.simulator.job import Job
from hangdog_models.topology import DEFAULT_ORDER, Layout, build

#: Kinds of jobs and how often each is drawn: the pipelines of large jobs first, as in the field's published hangs.
FRAMEWORKS = {"megatron": 6, "megatron-interleaved": 2, "fsdp": 4, "ddp": 3, "deepspeed": 3, "pipelining": 2}
#: From this size on one layer and few micro-batches are simulated: what is cut repeats itself.
LARGE = 512
#: Micro-batches simulated of a step; 1F1B repeats itself after the pipeline is full, and with fewer it never is.
MOST_MICROBATCHES = 12
#: Machines under one leaf switch: rail-optimised pods of common size.
SWITCH_MACHINES = (4, 8, 16)


def draw(rng: Random, ranks: int, plan: tuple[str, ...], *, gloo: bool | None = None) -> Job:
    """A job of so many ranks, a power of two from 8 up. `plan`: the steps it runs."""
    framework = rng.choices(list(FRAMEWORKS), list(FRAMEWORKS.values()))[0]
    sizes, experts = _sizes(rng, framework, ranks)
    per = 8 if rng.random() < 0.85 else 4
    order = DEFAULT_ORDER if rng.random() < 0.75 or "pp" not in sizes else ("tp", "cp", "ep", "pp", "dp")
    switches = {}
    if rng.random() < 0.4 and ranks // per >= 8:
        pod = rng.choice([size for size in SWITCH_MACHINES if 2 * size <= ranks // per])
        switches = {
            f"leaf-{at}": tuple(f"node-{machine}" for machine in range(at * pod, min((at + 1) * pod, ranks // per)))
            for at in range(ranks // per // pod)
        }
    layout = Layout(ranks, order, sizes, per, switches=switches)
    topology, notes = build(layout, None)
    assert not notes, notes
    stages = sizes.get("pp", 1)
    large = ranks >= LARGE
    chunks = 2 if framework == "megatron-interleaved" else 1
    microbatches = rng.choice((2, 4)) if large else rng.randint(1, 2) * stages if stages > 1 else rng.randint(1, 4)
    if chunks > 1:
        microbatches = stages * (1 if large else rng.randint(1, 2))  # Megatron wants a multiple of the stages
    return Job(
        framework, topology, layout, plan, min(microbatches, MOST_MICROBATCHES), layers=1 if large or stages >= 8 else rng.randint(1, 2), chunks=chunks,
        gloo=rng.random() < 0.1 and framework in ("ddp", "fsdp", "pipelining") if gloo is None else gloo,
        blocking=rng.random() < 0.2, p2p_sync=rng.random() < 0.7, overlap=rng.random() < 0.7, experts=experts,
        ring=rng.random() < 0.7, old_batches=rng.random() < 0.3,
    )  # fmt: skip


def _sizes(rng: Random, framework: str, ranks: int) -> tuple[dict[str, int], bool]:
    """Sizes by dimension, those of 1 left out, and whether layers are mixtures of experts."""
    sizes = {"tp": 1, "cp": 1, "pp": 1, "ep": 1}
    if framework.startswith("megatron"):
        sizes["tp"] = rng.choices((1, 2, 4, 8), (1, 2, 3, 4))[0]
        most = 4 if framework != "megatron" and ranks >= LARGE else 16  # interleaving multiplies the micro-batches
        sizes["pp"] = min(most, rng.choices((1, 2, 4, 8, 16), (0 if framework != "megatron" else 2, 3, 4, 3, 2))[0])
        sizes["cp"] = rng.choices((1, 2, 4), (8, 1, 1))[0]
    elif framework == "pipelining":
        sizes["pp"] = rng.choice((2, 4, 8))
    elif framework == "fsdp":
        sizes["tp"] = rng.choices((1, 4, 8), (6, 2, 2))[0]
    for dim in ("cp", "pp", "tp"):  # at least two replicas
        while sizes["tp"] * sizes["cp"] * sizes["pp"] * 2 > ranks and sizes[dim] > (2 if dim == "pp" else 1):
            sizes[dim] //= 2
    sizes["dp"] = ranks // (sizes["tp"] * sizes["cp"] * sizes["pp"])
    experts = framework.startswith("megatron") and rng.random() < 0.25
    if experts:
        sizes["ep"] = rng.choice([size for size in (2, 4, 8) if sizes["dp"] * sizes["cp"] % size == 0] or [1])
    return {dim: size for dim, size in sizes.items() if size > 1}, experts and sizes["ep"] > 1
