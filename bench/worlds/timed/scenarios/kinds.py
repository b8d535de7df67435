"""The kinds of incidents: what happens, in which jobs it may, and how often each class of them is drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from worlds.timed.jobs.job import Job
from worlds.timed.scenarios import code, duties, healthy, hosts, services, slow
from worlds.timed.scenarios.scenario import Scenario

JOBS = ("megatron", "fsdp", "deepspeed", "transformers", "lightning", "jax", "ray", "inhouse", "inhouse-gloo")
#: Jobs of PyTorch that start from scripts of their own.
_TORCH = ("megatron", "fsdp", "deepspeed", "transformers", "lightning", "inhouse")
_GLOO = (*_TORCH, "inhouse-gloo")
#: The share of cases of each class.
SHARES = {"healthy": 0.35, "machine": 0.30, "software": 0.20, "dependency": 0.10, "slow": 0.05}

Maker: TypeAlias = Callable[[str, Job, Random], Scenario]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of incident. `later`: it came to the world after its first 240 cases, which numbers were fitted with."""

    name: str
    family: str
    jobs: Sequence[str]
    make: Maker
    later: bool = False


def _kinds(family: str, rows: Sequence[tuple[str, Sequence[str], Maker]], *, later: bool = False) -> list[Kind]:
    return [Kind(name, family, jobs, make, later) for name, jobs, make in rows]


KINDS = (
    *_kinds(
        "healthy",
        [
            # twice as often as any other
            ("training", JOBS, Scenario),
            ("training", JOBS, Scenario),
            ("rank0-evaluation", [one for one in JOBS if one != "ray"], duties.Evaluation),
            ("rank0-upload", _TORCH, duties.Upload),
            ("rank0-index", [one for one in (*_TORCH, "jax") if one != "fsdp"], duties.Index),
            ("rank0-slow-log", ("transformers", "lightning", "inhouse", "fsdp", "inhouse-gloo"), duties.SlowLog),
            ("checkpoint", ("fsdp", "megatron", "deepspeed", "jax", "inhouse"), healthy.Checkpoint),
            ("rank0-checkpoint", ("transformers", "lightning", "inhouse", "inhouse-gloo"), duties.Checkpoint),
            ("asynchronous-checkpoint", ("fsdp", "megatron", "deepspeed"), healthy.AsynchronousCheckpoint),
            ("recompilation", ("fsdp", "transformers", "jax", "lightning"), healthy.Recompilation),
            ("one-compiles", ("fsdp", "transformers", "lightning", "jax"), duties.CompilesAlone),
            ("autotuning", ("fsdp", "transformers", "lightning"), healthy.Autotuning),
            ("uneven-experts", ("megatron",), healthy.UnevenExperts),
            ("one-collects-garbage", [one for one in _GLOO if one != "deepspeed"], duties.GarbageCollection),
            ("validation", [one for one in _TORCH if one != "deepspeed"], healthy.Validation),
            ("teardown", [one for one in _TORCH if one != "megatron"], duties.Teardown),
            ("connecting", [one for one in _TORCH if one != "deepspeed"], healthy.Connecting),
            ("long-rollout", ("ray",), healthy.LongTail),
            ("long-reward", ("ray",), healthy.Rewards),
        ],
    ),
    *_kinds(
        "machine",
        [
            ("stopped", (*_GLOO, "ray"), hosts.single),
            ("dead", _TORCH, hosts.single),
            (
                "blocked-in-kernel",
                ("megatron", "fsdp", "transformers", "deepspeed", "jax", "ray", "inhouse"),
                hosts.single,
            ),
            ("storage-of-one", _TORCH, hosts.whole),
            ("stuck-loader", (*_TORCH, "jax"), hosts.single),
            ("library-lock", JOBS, hosts.single),
            ("frozen-machine", _GLOO, hosts.whole),
            ("hung-device", (*_TORCH, "ray", "jax"), hosts.single),
            (
                "dead-nic",
                ("megatron", "fsdp", "deepspeed", "transformers", "inhouse", "ray", "jax", "inhouse-gloo"),
                hosts.whole,
            ),
            ("two-faults", _GLOO, hosts.TwoFaults),
        ],
    ),
    *_kinds(
        "software",
        [
            ("skipped-collective", (*_TORCH, "jax"), code.Mismatch),
            ("other-size", ("transformers", "fsdp", "inhouse", "deepspeed", "megatron"), code.Mismatch),
            (
                "other-operation",
                ("transformers", "fsdp", "inhouse", "inhouse-gloo", "deepspeed", "megatron"),
                code.Mismatch,
            ),
            ("other-type", ("transformers", "fsdp", "deepspeed", "inhouse"), code.Mismatch),
            ("uneven-batches", [one for one in _GLOO if one != "megatron"], code.UnevenBatches),
            ("rank0-evaluates-alone", [one for one in _TORCH if one != "megatron"], code.EvaluatesAlone),
            ("crossed-groups", ("inhouse", "inhouse-gloo", "megatron", "fsdp", "transformers"), code.CrossedGroups),
            ("lock-order", JOBS, code.LockOrder),
            ("swallowed-exception", JOBS, code.alone),
            ("breakpoint", JOBS, code.alone),
            ("endless-loop", JOBS, code.loop),
            ("endless-loop-of-all", JOBS, code.loop),
        ],
    ),
    *_kinds(
        "dependency",
        [
            ("storage-of-all", _TORCH, services.SharedStorage),
            ("data-service", ("inhouse", "inhouse-gloo", "transformers", "lightning", "fsdp"), services.no_data),
            ("name-service", _TORCH, services.no_names),
            ("dead-store", [one for one in _GLOO if one != "deepspeed"], services.DeadStore),
            ("licence", ("inhouse", "inhouse-gloo", "transformers", "megatron", "deepspeed"), services.no_answer),
        ],
    ),
    *_kinds(
        "slow",
        [
            ("slow-device", ("megatron", "inhouse-gloo", "fsdp", "transformers"), slow.Slow),
            ("slow-machine", ("megatron", "inhouse-gloo", "lightning"), slow.Slow),
            ("slow-link", ("megatron", "fsdp", "transformers"), slow.Slow),
        ],
    ),
    *_kinds("healthy", [("long-batch", (*_GLOO, "jax"), duties.LongBatch)], later=True),
    *_kinds("machine", [("out-of-memory", _TORCH, hosts.single)], later=True),
    *_kinds("software", [("empty-queue", JOBS, code.alone), ("child-process", JOBS, code.alone)], later=True),
    *_kinds(
        "dependency", [("tracker", _GLOO, services.no_answer), ("tokeniser", JOBS, services.no_answer)], later=True
    ),
    *_kinds("slow", [("slow-stage", ("megatron",), slow.SlowStage), ("slow-data", _GLOO, slow.SlowData)], later=True),
)


def deal(cases: int, seed: int, *, first: bool = False) -> list[tuple[Kind, str]]:
    """So many kinds, each with a job: classes by their shares, in a class every kind as often as every other.

    `first`: only kinds of the world's first 240 cases.
    """
    rng = Random(f"seq{seed}")  # as the first 240 cases were dealt
    counts = {family: round(cases * share) for family, share in SHARES.items()}
    counts["healthy"] += cases - sum(counts.values())
    dealt: list[Kind] = []
    for family, count in counts.items():
        kinds = [kind for kind in KINDS if kind.family == family and not (first and kind.later)]
        of_family: list[Kind] = []
        while len(of_family) < count:
            round_of = list(kinds)
            rng.shuffle(round_of)
            of_family += round_of
        dealt += of_family[:count]
    rng.shuffle(dealt)
    used: dict[tuple[str, str], int] = {}
    found = []
    for kind in dealt:
        job = min(kind.jobs, key=lambda one: (used.get((kind.name, one), 0), used.get(("", one), 0), rng.random()))
        for key in ((kind.name, job), ("", job)):
            used[key] = used.get(key, 0) + 1
        found.append((kind, job))
    return found
