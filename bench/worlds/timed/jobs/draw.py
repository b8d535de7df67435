"""Draws a job: how many ranks on which machines, laid out how, how fast, with which habits."""

from random import Random

from worlds.timed.jobs.job import Habits, Job, Pace
from worlds.timed.jobs.places import Places
from worlds.timed.layout import Layout, pipelined, replicated

#: The table of places.toml of a job that has none of its own name.
_TABLES = {"inhouse-gloo": "inhouse"}
#: Teams that wrote a framework of their own.
_TEAMS = ("ctr", "tower", "feed", "graph")


def job(name: str, seed: str, rng: Random, *, slow: bool, experts: bool, stages: bool) -> Job:
    """A job of one framework. `slow`: it is to be watched for long, so it is small. It may have to have `experts` or `stages`."""
    layout = _layout(name, rng, slow=slow, experts=experts, least=2 if stages else 1)
    team, pinned = rng.choice(_TEAMS), rng.random() < 0.6
    habits = _habits(name, layout, team, rng, slow=slow)
    common = "loader_pinned" if pinned else "loader_plain"
    drawn = {"loader": f"{{{common}}}", "team": team}
    places = Places(_TABLES.get(name, name), drawn, habits.schedule if name == "megatron" else "")
    steps = 3 if name == "ray" else 5 if layout.world_size >= 128 else rng.randint(6, 8)
    pace = _pace(name, layout, rng, slow=slow)
    timeout = 1800 if name == "inhouse-gloo" else rng.choice((600, 600, 1800, 3600))
    newer = rng.random() < 0.5
    return Job(name, seed, layout, places, pace, habits, 2000 if slow else steps, newer, pinned, timeout)


def _layout(name: str, rng: Random, *, slow: bool, experts: bool, least: int) -> Layout:
    per_machine = 1 if name == "jax" else rng.choice((1, 2, 4)) if name == "inhouse-gloo" else rng.choice((8, 8, 8, 4))
    if name == "jax":
        world = rng.choice((8, 8, 16, 32, 64))
    elif name == "inhouse-gloo":
        world = rng.choice((8, 12, 16, 32))
    else:
        world = rng.choice((16, 16, 32, 32) if slow else (8, 16, 16, 32, 32, 32, 64, 64, 128, 256))
    world = max(world, 2 * per_machine)
    machines = _machines(rng, world // per_machine)
    if name == "ray":
        return replicated(machines, per_machine, rng.choice((1, 2, 4)))
    if name != "megatron":
        return replicated(machines, per_machine)
    tensor = rng.choice((1, 2, 4, 4, 8) if per_machine == 8 else (1, 2, 4))
    stages = rng.choice((1, 2, 2, 4, 4, 8))
    stages = max(stages, least)
    while tensor * stages > world // 2:
        tensor, stages = (tensor, stages // 2) if stages > least else (tensor // 2, stages)
    if stages == 1 and world >= 16 and rng.random() < 0.6 and tensor * 2 <= world // 2:
        stages = 2
    data = world // tensor // stages
    many = max(count for count in (1, 2, 4, 8) if data % count == 0) if experts or rng.random() < 0.2 else 1
    return pipelined(machines, per_machine, tensor, stages, many)


def _machines(rng: Random, count: int) -> tuple[str, ...]:
    first = rng.randint(1, 400)
    apart = rng.random() < 0.5
    numbers = sorted(rng.sample(range(first, first + count * 3 + 4), count)) if apart else range(first, first + count)
    consonants = "bcdfghjklmnpqrstvwxz2456789"
    style = rng.choice(("gpu-a{0}", "node{0:03}", "ip-10-0-{1}-{2}", "h100-{0:03}.pod{3}.example.net", "dgx{0:02}", "worker-{4}.train-x7f2", "r{5:02}u{6:02}", "nid{7:06}", "gke-pool-{8:08x}-{9}"))  # fmt: skip
    return tuple(
        style.format(
            number,
            number % 250,
            number // 250 + 2,
            number // 64,
            number - first,
            number // 20,
            number % 20,
            1000 + number,
            number * 2654435761 % 2**32,
            "".join(rng.choice(consonants) for _ in range(4)),
        )
        for number in numbers
    )


def _pace(name: str, layout: Layout, rng: Random, *, slow: bool) -> Pace:
    kernel_s = rng.choice((0.06, 0.15, 0.3, 0.5)) * rng.uniform(0.7, 1.3)
    kernel_s *= 0.6 if slow else 0.5 if name == "ray" else 1.0
    return Pace(
        kernel_s=kernel_s,
        host_s=kernel_s * rng.choice((0.1, 0.9)) if slow else rng.uniform(0.003, 0.012),
        collective_s=rng.uniform(0.004, 0.02),
        queue=rng.choice((12, 24, 70)),
        microbatches=3 if name == "ray" else 4 if layout.world_size >= 128 else rng.choice((4, 6, 8)),
        bucket=rng.choice((13107200, 26214400, 7340032, 16777216)) + rng.randint(0, 9) * 1024,
        sequence=rng.choice((2048, 4096, 8192)),
        hidden=rng.choice((4096, 5120, 8192)),
    )


def _habits(name: str, layout: Layout, team: str, rng: Random, *, slow: bool) -> Habits:
    return Habits(
        blocking=name != "jax" and rng.random() < (0.48 if slow else 0.2),
        syncs_messages=rng.random() < 0.7,
        syncs_broadcast=rng.random() < 0.3,
        syncs_experts=rng.random() < 0.6,
        syncs_norm=name == "deepspeed" or rng.random() < 0.5,
        syncs_gather=name == "deepspeed" and rng.random() < 0.5,
        syncs_loss=rng.random() < (0.5 if slow else 0.15),
        clips=rng.random() < 0.8,
        log_every=1 if slow else rng.choice((1, 1, 1, 2, 4)),
        schedule="none" if layout.sizes.get("pp", 1) == 1 else "interleaved" if rng.random() < 0.3 else "1f1b",
        sharded_optimizer=rng.random() < 0.6,
        tied_embedding=rng.random() < 0.5,
        timers=rng.random() < 0.3,
        sparse=name == "inhouse" and team in ("ctr", "feed") and rng.random() < 0.7,
        syncs_sparse=rng.random() < 0.5,
    )
