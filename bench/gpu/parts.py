"""All parts of the proof, what matters most first: a slice that ends early has then shown the most."""

from collections.abc import Iterator

from gpu.families import capture, facts, ladder, nccl, nvml, overhead, profiler, traps
from gpu.kit import Part, Stand


def all_parts(stand: Stand) -> Iterator[Part]:
    yield from facts.parts(stand)
    yield from nccl.parts(stand)
    yield from capture.parts(stand)
    yield from profiler.parts(stand)
    yield from overhead.parts(stand)
    yield from nvml.parts(stand)
    yield from traps.parts(stand)
    yield from ladder.parts(stand)
