"""How right hangdog is where no rule knows the frames, and what machines as vectors tell there.

    python bench/unknown.py FOLDER [FOLDER ...]        folders of cases, as `python bench/worlds` takes them

Every case is judged three times: as it is; without the names of its framework and of the user's code, where those of
PyTorch and of other libraries stay; and without all names but those of Python's own library. The columns:

    right     the word is accepted, who is to be found is named, and nobody innocent is evicted
    first     of the cases in which somebody is to be found, the first suspect is one
    innocent  somebody is evicted who is not to be
    apart     of the same cases as `first`, those in which the machine that stands apart most is to be found: a machine is the
              vector of the shares of its ranks at each place in each look, less those of their like; how far it lies apart
              is HDBSCAN's outlier score (GLOSH)
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from hangdog_models.diagnosis.clustering.catalogue import clustering
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe.rank_state_reader import RankStateReader
from hangdog_models.rules.ruleset import last_component, packaged
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Frame
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity
from worlds.case import Case, of_folder
from worlds.score import Result, named_ranks, score

KNOWN, LIBRARIES, PYTHON = "as it is", "libraries alone", "Python alone"
#: Files of libraries whose names stay, by the folder they are installed in.
_LIBRARIES = ("torch/", "triton/", "numpy/", "urllib3/", "requests/", "boto3/", "s3transfer/", "filelock/", "datasets/")
#: Folders of Python's own library that captures name in front of a file.
_FOLDERS = ("asyncio/", "concurrent/", "http/", "importlib/", "json/", "logging/", "multiprocessing/", "re/", "urllib/")
#: Fewer machines have no like to be compared with.
LEAST = 4


@dataclass(frozen=True, slots=True)
class Row:
    """One case under one set of names. `apart`: who stands apart most is to be found; None where nobody is."""

    names: str
    result: Result
    apart: bool | None


def renamed(snapshot: Snapshot, names: str) -> Snapshot:
    """The same job of a framework that nobody knows: equal names read equally, whatever rank or look shows them."""
    if names == KNOWN:
        return snapshot
    rounds = tuple(
        replace(
            one,
            traces=tuple(
                msgspec.structs.replace(
                    trace,
                    threads=tuple(
                        msgspec.structs.replace(
                            thread, frames=tuple(_renamed(frame, names == LIBRARIES) for frame in thread.frames)
                        )
                        for thread in trace.threads
                    ),
                )
                for trace in one.traces
            ),
        )
        for one in snapshot.rounds
    )
    return replace(snapshot, rounds=rounds, job=replace(snapshot.job, framework=""))


@cache
def _renamed(frame: Frame, libraries: bool) -> Frame:
    """The frame under a name that tells nothing; a module's own frame and native ones keep theirs."""
    whole = f"/{frame.file}"
    kept = [f"/{folder}" for folder in (*_FOLDERS, *(_LIBRARIES if libraries else ()))]
    own = frame.file.removesuffix(".py") in sys.stdlib_module_names
    if frame.native or own or not frame.file or frame.file.startswith("<") or any(folder in whole for folder in kept):
        return frame
    name = last_component(frame.function)
    function = frame.function if name.startswith("<") else f"call_{_hash(name)}"
    return Frame(function, f"code_{_hash(frame.file)}.py", frame.line)


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()


def vectors(snapshot: Snapshot, topology: Topology) -> dict[str, dict[tuple[int, int], float]]:
    """Of each machine the shares of its ranks at each place of each look, less those of the other ranks of their stage."""
    stages = {rank: stage for group in topology.groups.get("pp", ()) for stage, rank in enumerate(group)}
    reader = RankStateReader(packaged(), topology.groups)
    found: dict[str, dict[tuple[int, int], float]] = {machine: defaultdict(float) for machine in topology.machines}
    for number, one in enumerate(snapshot.rounds):
        clusters = clustering("linkage")(reader.look(one.traces), topology)
        seen = [cluster for cluster in clusters if cluster.sample.activity is not Activity.MISSING]
        at = {rank: place for place, cluster in enumerate(seen) for rank in cluster.ranks}
        of_stage: dict[int, Counter[int]] = defaultdict(Counter)
        for rank, place in at.items():
            of_stage[stages.get(rank, 0)][place] += 1
        for machine, ranks in topology.machines.items():
            there = [rank for rank in ranks if rank in at]
            for rank in there:
                like = of_stage[stages.get(rank, 0)]
                others = like.total() - 1
                found[machine][number, at[rank]] += 1 / len(there)
                for place, count in like.items() if others else ():
                    found[machine][number, place] -= (count - (place == at[rank])) / others / len(there)
    return found


def stands_apart(snapshot: Snapshot, topology: Topology) -> str | None:
    """The machine with the highest outlier score; None where there are too few, or all stand alike."""
    if len(topology.machines) < LEAST:
        return None
    import hdbscan
    import numpy as np

    found = vectors(snapshot, topology)
    keys = sorted({key for vector in found.values() for key in vector})
    points = np.array([[vector.get(key, 0.0) for key in keys] for vector in found.values()])
    distances = np.abs(points[:, None, :] - points[None, :, :]).sum(2) / (2 * len(snapshot.rounds))
    model = hdbscan.HDBSCAN(
        min_cluster_size=max(2, len(found) // LEAST), min_samples=1, metric="precomputed", allow_single_cluster=True
    )
    scores = np.nan_to_num(model.fit(distances.clip(0.01) - 0.01 * np.eye(len(found))).outlier_scores_)
    return list(found)[int(scores.argmax())] if scores.max() > 0 else None


def rows(case: Case) -> Iterator[Row]:
    want, shape = case.want, case.topology
    sought = named_ranks(want.get("must_include_ranks", "")) | named_ranks(want.get("must_include_any_ranks", ""))
    guilty = {*want.get("must_include_machines", ()), *shape.machines_of(tuple(sorted(sought)))}
    for names in (KNOWN, LIBRARIES, PYTHON):
        seen = renamed(case.snapshot, names)
        result = score(case.name, want, diagnose(seen, shape), shape)
        yield Row(names, result, stands_apart(seen, shape) in guilty if result.first is not None else None)


def table(found: Sequence[Row]) -> Iterator[str]:
    """A line for slow jobs and one for all others, under each set of names."""
    yield f"{'jobs':6} {'names':16} {'n':>4} {'right':>6} {'first':>6} {'apart':>6} {'innocent':>9}"
    for slow in (True, False):
        for names in (KNOWN, LIBRARIES, PYTHON):
            some = [one for one in found if one.names == names and ("slow" in one.result.kind) is slow]
            firsts = [one for one in some if one.apart is not None]
            if some:
                yield (
                    f"{'slow' if slow else 'others':6} {names:16} {len(some):4} {_share(one.result.right for one in some):>6} "
                    f"{_share(bool(one.result.first) for one in firsts):>6} {_share(bool(one.apart) for one in firsts):>6} "
                    f"{sum(one.result.innocent for one in some):9}"
                )


def _share(of: Iterator[bool]) -> str:
    held = list(of)
    return f"{sum(held) / len(held):.0%}" if held else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--kind", default="", metavar="K", help="only cases whose names hold this")
    asked = parser.parse_args(arguments)
    found = [
        row
        for folder in asked.folders
        for case in of_folder(folder, folder.name)
        if asked.kind in case.name
        for row in rows(case)
    ]
    if not found:
        parser.error(f"no case (a folder with expected.toml) in {', '.join(map(str, asked.folders))}")
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
