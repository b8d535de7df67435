"""job.toml: what the collector knows of the job."""

from collections.abc import Iterator
from random import Random
from zlib import crc32

from hangdog_models.ranks import format_ranks
from worlds.timed.evidence.plan import Plan
from worlds.timed.incident import Incident

_FRAMEWORKS = {
    "megatron": "megatron",
    "fsdp": "fsdp",
    "deepspeed": "deepspeed",
    "transformers": "ddp",
    "lightning": "ddp",
    "jax": "jax",
}


def lines(incident: Incident, plan: Plan, rng: Random) -> Iterator[str]:
    """The lines of job.toml."""
    job, layout = incident.job, incident.layout
    yield "[job]"
    yield f'id = "{rng.choice(("exp", "run", "llm", "prod", "tune"))}-{crc32(job.seed.encode()):08x}"'
    yield f"world_size = {layout.world_size}"
    full = plan.job_file == "full"
    if full and rng.random() < 0.8:
        yield f'framework = "{_FRAMEWORKS.get(job.name, "other")}"'
    if plan.stalled:
        yield f"stalled_s = {incident.stalled_s:.0f}"
    if not full:
        return
    if job.name == "megatron":
        sizes = {"tp": 1, "cp": 1, "ep": 1, "dp": 1, "pp": 1} | dict(layout.sizes)
        yield from ("", "[topology]", 'order = "tp-cp-ep-dp-pp"', *(f"{dim} = {size}" for dim, size in sizes.items()))
        yield f"gpus_per_node = {layout.per_machine}"
    elif rng.random() < 0.7:
        yield from ("", "[topology]", f"dp = {layout.world_size}", f"gpus_per_node = {layout.per_machine}")
    yield from ("", "[machines]")
    yield from (f'"{machine}" = "{format_ranks(layout.ranks_on(machine))}"' for machine in layout.machines)
