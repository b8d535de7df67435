"""A published trace of a slow job: what each worker did in some steps, and when."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from straggler_traces.parquet import columns

#: The traces: the slowed worker's ranks, if one was slowed, and why the job is slow.
TRUTH = {
    "AR": ((0, 1, 2, 3), "one worker was slowed on purpose"),
    "SE": ((), "sequences of uneven length, and a last stage with more to do"),
    "ST": ((), "a last stage with more to do"),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How the job was split. A worker is one stage of one replica; its ranks split the tensors and the sequences."""

    dp: int
    pp: int
    tp: int
    dsp: int

    @property
    def ranks_of_worker(self) -> int:
        return self.tp * self.dsp

    def worker(self, dp: int, stage: int) -> range:
        """The ranks of one stage of one replica."""
        first = (stage * self.dp + dp) * self.ranks_of_worker
        return range(first, first + self.ranks_of_worker)


@dataclass(frozen=True, slots=True)
class Operation:
    """What one worker did: `start_s` counts from the beginning of the first step, over all steps of the trace."""

    dp: int
    stage: int
    step: int
    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Trace:
    """A job's operations by their beginnings, and when each of its steps began and the last one ended."""

    name: str
    shape: Shape
    operations: tuple[Operation, ...]
    borders_s: tuple[float, ...]


def read(folder: Path, name: str) -> Trace:
    """The trace `name` of the published folder. Its steps are samples; they are put one after another."""
    table = columns(folder / f"trace-{name}.parquet")
    sizes = _sizes((folder / f"meta-{name}.yaml").read_text(encoding="utf-8"))
    begins = [float(value) for value in table["start_ts"]]
    lasts = [float(value) for value in table["duration"]]
    steps = [int(value) for value in table["step"]]
    length: dict[int, float] = {}
    for step, begin, lasted in zip(steps, begins, lasts, strict=True):
        length[step] = max(length.get(step, 0.0), begin + lasted)
    borders = [0.0]
    offset: dict[int, float] = {}
    for step in sorted(length):
        offset[step] = borders[-1]
        borders.append(borders[-1] + length[step])
    operations = [
        Operation(int(dp), int(stage), step, str(kind), offset[step] + begin, offset[step] + begin + lasted)
        for dp, stage, step, kind, begin, lasted in zip(
            table["dp_rank"], table["stage"], steps, table["optype"], begins, lasts, strict=True
        )
    ]
    shape = Shape(sizes["dp_size"], sizes["pp_size"], sizes["tp_size"], sizes["dsp_size"])
    return Trace(name, shape, _by_start(operations), tuple(borders))


def _by_start(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    return tuple(sorted(operations, key=lambda one: (one.start_s, one.dp, one.stage, one.end_s)))


def _sizes(text: str) -> dict[str, int]:
    """The numbers of a flat YAML file."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): int(value) for key, _, value in pairs if value.strip().isdecimal()}
