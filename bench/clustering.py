"""Which clustering model sees the places of a job as they are: exact, average linkage and HDBSCAN beside each other.

    python bench/clustering.py [--seeds N] [--corpus FOLDER]        default: 20 seeds, ../shared/corpus when it is there

Jobs of 64 to 1,024 ranks stand in known places, of a framework that the rules know and of one that they do not; a share
of the ranks shows jitter: helper frames, another layer of the same module tree, another depth of recursion, inner frames
of a library. One or two ranks are culprits, each in a place of its own. The columns:

    rand     adjusted Rand index against the true places, over ranks: 1 is exact, 0 is chance
    pure     share of the ranks that are in the majority place of their cluster: what is below 1 was joined wrongly
    parts    clusters for each true place of two ranks or more: 1 is ideal, more is a place torn apart
    alone    share of the culprits that nobody else was joined with: what is below 1 hides a culprit in the crowd
    ms       milliseconds of CPU for one look, without importing the model's libraries
"""

import argparse
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from time import process_time

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.diagnosis.clustering.catalogue import MODELS, clustering
from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.observe.rank_state_reader import RankStateReader
from hangdog_models.errors import HangdogError
from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import DEFAULTS
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import Frame, ProcessTrace, Thread
from hangdog_models.topology import Layout, Topology, build

Calls = list[tuple[str, str]]

C10D = "torch/distributed/distributed_c10d.py"
TOP: Calls = [("<module>", "pretrain.py"), ("pretrain", "training.py"), ("train", "training.py")]
#: Helpers that jitter puts between other frames.
HELPERS: Calls = [("timed", "timers.py"), ("inner_context", "nvtx.py"), ("retry", "robust.py"), ("trace", "spans.py")]
#: Two ways through a layer of the module tree.
LAYERS: list[Calls] = [
    [("forward", "layer.py"), ("_forward_attention", "layer.py"), ("forward", "attention.py")],
    [("forward", "layer.py"), ("_forward_mlp", "layer.py"), ("forward", "mlp.py")],
]
TREE = ("TREE", "")  # stands for a walk through the module tree

MEGATRON = "megatron/core"
PLACES: dict[str, dict[str, Calls]] = {
    "known": {
        "tensor": [*TOP, ("step", "training.py"), TREE, ("forward", f"{MEGATRON}/tensor_parallel/layers.py"),
                   ("_reduce", f"{MEGATRON}/tensor_parallel/mappings.py"), ("all_reduce", C10D)],
        "receive": [*TOP, ("step", "training.py"), ("run", "schedules.py"),
                    ("recv_forward", f"{MEGATRON}/pipeline_parallel/p2p_communication.py"),
                    ("_communicate", f"{MEGATRON}/pipeline_parallel/p2p_communication.py")],
        "gradients": [*TOP, ("step", "training.py"), ("finalize", "schedules.py"),
                      ("start_grad_sync", f"{MEGATRON}/distributed/param_and_grad_buffer.py"), ("all_reduce", C10D)],
        "norm": [*TOP, ("step", "training.py"), ("step_optimizer", "optimizer.py"), ("grad_norm", "optimizer.py"),
                 ("all_reduce", C10D)],
        "metrics": [*TOP, ("report", "training.py"), ("log_metrics", "metrics.py"), ("all_reduce", C10D)],
        "item": [*TOP, ("step", "training.py"), ("loss_value", "training.py"), ("synchronize", "torch/cuda/__init__.py")],
    },
    "unknown": {
        "tensor": [*TOP, ("step", "training.py"), TREE, ("forward", "linear.py"), ("sum_parts", "acme.py"), ("hold", "acme.py")],
        "receive": [*TOP, ("step", "training.py"), ("run", "schedules.py"), ("next_input", "pipe.py"), ("hold", "acme.py")],
        "gradients": [*TOP, ("step", "training.py"), ("finish", "schedules.py"), ("flush", "buckets.py"), ("hold", "acme.py")],
        "norm": [*TOP, ("step", "training.py"), ("step_optimizer", "optimizer.py"), ("grad_norm", "optimizer.py"), ("hold", "acme.py")],
        "forward": [*TOP, ("step", "training.py"), TREE, ("forward", "norms.py")],
        "metrics": [*TOP, ("report", "training.py"), ("log_metrics", "metrics.py"), ("hold", "acme.py")],
    },
}  # fmt: skip
#: Where culprits stand: deep in their own code, in a loader, in another phase that ends in the same operation.
CULPRITS: dict[str, list[Calls]] = {
    "known": [
        [*TOP, ("next_batch", "data.py"), ("_next_data", "torch/utils/data/dataloader.py"), ("get", "queue.py")],
        [*TOP, ("step", "training.py"), ("augment", "data.py"), ("rotate", "images.py")],
        [*TOP, ("step", "training.py")],
        [*TOP, ("evaluate", "evaluation.py"), ("gather_scores", "evaluation.py"), ("all_reduce", C10D)],
    ],
    "unknown": [
        [*TOP, ("next_batch", "data.py"), ("fetch", "store.py"), ("wait", "threading.py")],
        [*TOP, ("step", "training.py"), ("augment", "data.py"), ("rotate", "images.py")],
        [*TOP, ("step", "training.py")],
        [*TOP, ("evaluate", "evaluation.py"), ("gather_scores", "evaluation.py"), ("hold", "acme.py")],
    ],
}


def stack(calls: Calls, share: float, chance: random.Random) -> tuple[Frame, ...]:
    """The frames of a rank in this place; with probability `share` each kind of jitter is on it."""
    found: Calls = []
    for call in calls:
        if call is TREE:
            for _ in range(chance.choice([2, 3, 4, 6]) if chance.random() < share else 2):
                found += LAYERS[chance.random() < share / 2]
        else:
            found.append(call)
    if chance.random() < share:
        for _ in range(chance.choice([1, 1, 2])):
            found.insert(chance.randrange(len(TOP), len(found)), chance.choice(HELPERS))
    if chance.random() < share:
        found += chance.choice([[("_check", found[-1][1])], [("_check", found[-1][1]), ("spin", found[-1][1])]])
    return tuple(Frame(function, file, chance.randrange(1, 400)) for function, file in found)


def look_of(
    framework: str, ranks: int, share: float, seed: int
) -> tuple[Look, dict[Rank, str], tuple[Rank, ...], Topology]:
    """A job whose ranks stand in three to five places by their coordinates, and what is true of it."""
    chance = random.Random(f"{framework} {ranks} {share} {seed}")
    topology, _ = build(Layout(sizes={"tp": 4, "dp": ranks // 16, "pp": 4}, ranks_per_machine=8), None)
    names = chance.sample(sorted(PLACES[framework]), chance.choice([3, 4, 5]))
    weights = [chance.choice([1, 3, 10]) for _ in names]
    truth = {Rank(at): name for at, name in enumerate(chance.choices(names, weights, k=ranks))}
    guilty = tuple(Rank(rank) for rank in chance.sample(range(ranks), chance.choice([1, 1, 2])))
    own = dict(zip(guilty, chance.sample(CULPRITS[framework], len(guilty)), strict=True))
    truth |= {rank: f"culprit {rank}" for rank in guilty}
    traces = []
    for rank, name in truth.items():
        frames = stack(own[rank], 0, chance) if rank in own else stack(PLACES[framework][name], share, chance)
        traces.append(ProcessTrace(rank, pid=1, threads=(Thread("MainThread", 1, frames, active=False),)))
    return RankStateReader(packaged()).look(traces), truth, guilty, topology


def rand(clusters: Sequence[Cluster], truth: Mapping[Rank, str]) -> float:
    """The adjusted Rand index of the clusters against the truth."""

    def pairs(sizes: Counter[object]) -> float:
        return sum(n * (n - 1) / 2 for n in sizes.values())

    of = {rank: at for at, cluster in enumerate(clusters) for rank in cluster.ranks}
    both = pairs(Counter((truth[rank], of[rank]) for rank in truth))
    here, there = pairs(Counter(truth.values())), pairs(Counter(of.values()))
    chance = here * there / (len(truth) * (len(truth) - 1) / 2)
    return (both - chance) / ((here + there) / 2 - chance) if here + there != 2 * chance else 1.0


def measure(name: str, seen: tuple[Look, dict[Rank, str], tuple[Rank, ...], Topology]) -> dict[str, float]:
    look, truth, guilty, topology = seen
    started = process_time()
    clusters = clustering(name)(look, topology)
    spent = process_time() - started
    major = sum(max(Counter(truth[rank] for rank in cluster.ranks).values()) for cluster in clusters)
    parts = Counter(place for cluster in clusters for place in {truth[rank] for rank in cluster.ranks})
    crowds = [place for place, ranks in Counter(truth.values()).items() if ranks > 1]
    return {
        "rand": rand(clusters, truth),
        "pure": major / len(truth),
        "parts": fmean(parts[place] for place in crowds),
        "alone": fmean(any(cluster.ranks == (rank,) for cluster in clusters) for rank in guilty),
        "ms": 1e3 * spent,
    }


def synthetic(seeds: int) -> None:
    print("framework  ranks  jitter  model       rand    pure   parts   alone       ms")
    for framework in PLACES:
        for ranks, share in ((64, 0.0), (64, 0.1), (64, 0.5), (1024, 0.0), (1024, 0.1), (1024, 0.5)):
            jobs = [look_of(framework, ranks, share, seed) for seed in range(seeds)]
            for name in MODELS:
                rows = [measure(name, job) for job in jobs]
                means = {key: fmean(row[key] for row in rows) for key in rows[0]}
                print(
                    f"{framework:9}  {ranks:5}  {share:6.1f}  {name:8}"
                    + "".join(f"  {means[key]:6.3f}" for key in ("rand", "pure", "parts", "alone"))
                    + f"  {means['ms']:7.1f}"
                )


def recorded(corpus: Path) -> None:
    """Clusters of each recorded bundle under each model; `split` says whether the named culprits stand apart."""
    import tomllib

    print("\nrecorded looks: clusters of the first round, * where a rank to be named was joined with another one")
    totals: Counter[str] = Counter()
    for expected in sorted(corpus.glob("*/*/expected.toml")):
        wanted = tomllib.loads(expected.read_text(encoding="utf-8"))
        if "stacks" not in wanted.get("evidence", ()):
            continue
        try:
            snapshot, layout = open_bundle(expected.parent, DEFAULTS)
        except HangdogError:
            continue
        topology, _ = build(layout, snapshot.highest_rank())
        guilty = {int(r) for r in str(wanted.get("must_include_ranks", "")).split(",") if r.isdigit()}
        look = RankStateReader(packaged()).look(snapshot.rounds[0].traces)
        told = []
        for name in MODELS:
            clusters = clustering(name)(look, topology)
            hidden = any(guilty & set(c.ranks) and set(c.ranks) - guilty for c in clusters)
            totals[name] += len(clusters)
            totals[f"{name}*"] += hidden
            told.append(f"{'+'.join(str(len(c.ranks)) for c in clusters)}{'*' if hidden else ''}")
        if len(set(told)) > 1:
            print(f"  {expected.parent.name:38}" + "  ".join(f"{n}: {t}" for n, t in zip(MODELS, told, strict=True)))
    print("  all: " + ", ".join(f"{n} {totals[n]} clusters, {totals[n + '*']} hidden" for n in MODELS))


def growth() -> None:
    """Seconds of CPU by distinct stacks at 2,048 ranks, and by ranks at a fixed number of places."""
    print("\ndistinct  ranks  " + "".join(f"{name:>10}" for name in MODELS) + "   seconds")
    for ranks, distinct in [(2048, n) for n in (8, 32, 128, 256, 512)] + [(n, 32) for n in (1024, 16384, 131072)]:
        chance = random.Random(distinct)
        stacks = [stack(PLACES["unknown"]["tensor"], 0, chance) for _ in range(1)]
        deep: dict[tuple[Frame, ...], None] = dict.fromkeys(stacks)
        while len(deep) < distinct:
            extra = Frame(f"walk_{len(deep)}", f"module_{len(deep) % 7}.py", 1)
            base = stack(PLACES["unknown"]["tensor"], 1, chance)
            deep[(*base[: len(TOP) + 2], extra, *base[len(TOP) + 2 :])] = None
        frames = list(deep)
        traces = [
            ProcessTrace(Rank(r), pid=1, threads=(Thread("MainThread", 1, frames[r % distinct], active=False),))
            for r in range(ranks)
        ]
        look = RankStateReader(packaged()).look(traces)
        topology, _ = build(Layout(sizes={"tp": 4, "dp": ranks // 16, "pp": 4}), None)
        row = f"{distinct:8}  {ranks:5}  "
        for name in MODELS:
            started = process_time()
            clustering(name)(look, topology)
            row += f"{process_time() - started:10.3f}"
        print(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--corpus", type=Path, default=Path(__file__).parents[2] / "shared" / "corpus")
    asked = parser.parse_args()
    for name in MODELS:  # libraries are imported here, not inside a measurement
        measure(name, look_of("unknown", 64, 0.5, 0))
    synthetic(asked.seeds)
    if asked.corpus.is_dir():
        recorded(asked.corpus)
    growth()


if __name__ == "__main__":
    main()
