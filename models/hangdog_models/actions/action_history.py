"""What is known when it is decided: the machines that a verdict names, all machines, and what was asked before."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Body:
    """Which hardware a machine's name stood for, and which of its starts; empty: its agent did not tell."""

    boot: str = ""
    serial: str = ""


@dataclass(frozen=True, slots=True)
class WantedAction:
    """The machines one verdict would evict; `evidence_at` (Unix seconds) is when what it rests on was seen, on `bodies`.

    `user` is whose job it is by the kernel's word, empty where no agent told it. `conflicts` is what machines contradicted
    each other about, or the scheduler contradicts them.
    """

    incident: str
    job: str
    machines: tuple[str, ...]
    evidence_at: float
    bodies: Mapping[str, Body] = field(default_factory=dict)
    user: str = ""
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionHistory:
    """All machines: how many, how many of them have no job, which are there as what, and behind which switch or rack."""

    machines: int
    free: int
    bodies: Mapping[str, Body] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastAction:
    """One machine that a verdict asked for, at `at` (Unix seconds).

    `took`: it was taken, or is being; then `out` until it is released. `settled`: its replacement is found, so that it
    needs no spare any more. `failed`: it could not be done, for good. `user` is as in `Wanted`.
    """

    machine: str
    incident: str
    job: str
    domain: str
    at: float
    took: bool
    out: bool = False
    settled: bool = False
    failed: bool = False
    user: str = ""
