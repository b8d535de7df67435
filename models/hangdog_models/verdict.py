"""The verdict: what hangdog concluded, in the form that is printed, stored and served (`hangdog.verdict/1`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hangdog_models.numbers.wrong_number import WrongNumbers
from hangdog_models.ranks import Rank, format_ranks, parse_ranks

SCHEMA = "hangdog.verdict/1"
#: The parts of a step's cost, as the JSON names them.
COSTS = ("waiting", "machines", "people")


class Kind(StrEnum):
    """The verdict in one word."""

    MACHINE = "machine"
    GROUP = "group"
    SOFTWARE = "software"
    DEPENDENCY = "dependency"
    SLOW = "slow"
    NONE = "none"
    UNDETERMINED = "undetermined"


class StallCause(StrEnum):
    """Why a job is stalled; each cause has a probability."""

    MACHINE = "machine"
    GROUP = "group"
    SOFTWARE = "software"
    DEPENDENCY = "dependency"
    SLOW = "slow"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


class Act(StrEnum):
    """What may be done now."""

    WAIT = "wait"
    COLLECT = "collect"
    RESTART = "restart"
    TEST = "test"
    EVICT = "evict"
    ISOLATE_GROUP = "isolate_group"
    FIX_CODE = "fix_code"
    RESTORE_SERVICE = "restore_service"
    ASK_PEOPLE = "ask_people"


#: Acts that take machines away from the job.
ISOLATES = (Act.EVICT, Act.ISOLATE_GROUP)


class Activity(StrEnum):
    """What a rank is doing, as far as its evidence shows."""

    COLLECTIVE = "collective"
    P2P = "p2p"
    DEVICE_SYNC = "device_sync"
    LAUNCH = "launch"
    DATALOADER = "dataloader"
    STORAGE = "storage"
    CHECKPOINT = "checkpoint"
    RENDEZVOUS = "rendezvous"
    COMPILE = "compile"
    LOCK = "lock"
    GIL = "gil"
    GC = "gc"
    COMPUTE = "compute"
    NETWORK = "network"
    TEARDOWN = "teardown"
    IDLE = "idle"
    STOPPED = "stopped"
    DEAD = "dead"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class VerdictReason:
    """One reason of a verdict: a stable code of what kind of evidence it is, for programs, and the sentence for people.

    The code is empty in verdicts of older versions.
    """

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Suspect:
    """One hypothesis: a machine or a group, the ranks it rests on and its probability."""

    ranks: tuple[Rank, ...]
    machines: tuple[str, ...]
    probability: float
    because: tuple[VerdictReason, ...]


@dataclass(frozen=True, slots=True)
class Culprit:
    """The ranks that hold the job up, whatever the cause, their machines, and the probability that it is they.

    `causes`: the part of that probability by each cause.
    """

    ranks: tuple[Rank, ...]
    machines: tuple[str, ...]
    probability: float
    because: tuple[VerdictReason, ...]
    causes: Mapping[StallCause, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepCost:
    """The expected cost of a step, in minutes of one GPU: the waiting job's, innocent machines', and people's time."""

    waiting: float
    machines: float
    people: float


@dataclass(frozen=True, slots=True)
class JobCrash:
    """How a crashed job ended: the rank that failed first, its machine, and how (`by SIGSEGV`).

    `rank` is None if none failed by itself, or only the machine is known where one did.
    """

    rank: Rank | None = None
    machine: str = ""
    how: str = ""


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """What a machine's checks found, if they opened the incident: its codes, the gravest first (`GPU lost`)."""

    machine: str
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do now, to which machines if any, and why; `cost` is None if it follows from another step."""

    do: Act
    machines: tuple[str, ...]
    why: str
    cost: StepCost | None = None


@dataclass(frozen=True, slots=True)
class Eviction:
    """What automatic triage would isolate now, and the probability that the fault is inside.

    For several machines it is the probability of the least sure one.
    """

    machines: tuple[str, ...] = ()
    coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class StuckGroup:
    dim: str
    ranks: tuple[Rank, ...]
    why: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as a verdict shows it; `stack` runs from the outermost frame to the innermost."""

    id: int
    ranks: tuple[Rank, ...]
    activity: Activity
    dim: str | None
    label: str
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which ranks were expected, captured and missing; `failed`: the reason of each failed or partial capture."""

    expected: int
    captured: int
    missing: tuple[Rank, ...]
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EvidenceReport:
    files_read: int = 0
    ignored: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    job_id: str
    world_size: int
    kind: Kind
    confidence: float
    because: tuple[VerdictReason, ...]
    suspects: tuple[Suspect, ...]
    evict: Eviction
    groups: tuple[StuckGroup, ...]
    clusters: tuple[ClusterView, ...]
    coverage: Coverage
    evidence: EvidenceReport
    rules: str
    #: None if no rank stands out. Verdicts of older versions have neither culprit, causes nor steps.
    culprit: Culprit | None = None
    causes: Mapping[StallCause, float] = field(default_factory=dict)
    next: tuple[Step, ...] = ()
    #: All steps that were compared by their costs, the cheapest first; not in the JSON.
    compared: tuple[Step, ...] = field(default=(), compare=False)
    #: If the job crashed: it is not stalled, it has ended.
    crash: JobCrash | None = None
    #: If a machine's checks opened it: then the job is not known to be stalled.
    check: MachineCheck | None = None
    #: If numbers that its ranks logged opened it: the job may run on.
    numbers: WrongNumbers | None = None
    #: Codes against the culprit's machines themselves, such as `Xid 79`: kept with an incident, and not in the JSON.
    signs: tuple[str, ...] = field(default=(), compare=False)

    @property
    def exit_code(self) -> int:
        """0 for none, 2 for undetermined, 1 for any other kind."""
        return {Kind.NONE: 0, Kind.UNDETERMINED: 2}.get(self.kind, 1)


def to_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict as the JSON object of the contract; probabilities are rounded to three digits."""
    crash, check = verdict.crash, verdict.check
    trigger: dict[str, Any] = {}
    if crash is not None:
        trigger["crash"] = {"rank": crash.rank, "machine": crash.machine, "how": crash.how}
    if check is not None:
        trigger["check"] = {"machine": check.machine, "found": list(check.found)}
    if verdict.numbers is not None:
        trigger["numbers"] = verdict.numbers.to_json()
    return {
        "schema": SCHEMA,
        "job": {"id": verdict.job_id, "world_size": verdict.world_size},
        "verdict": str(verdict.kind),
        "confidence": round(verdict.confidence, 3),
        **_because_to_json(verdict.because),
        "suspects": [_blamed_to_json(suspect) for suspect in verdict.suspects],
        "evict": {"machines": list(verdict.evict.machines), "coverage": round(verdict.evict.coverage, 3)},
        "groups": [{"dim": g.dim, "ranks": format_ranks(g.ranks), "why": g.why} for g in verdict.groups],
        "clusters": [
            {
                "id": cluster.id,
                "size": len(cluster.ranks),
                "ranks": format_ranks(cluster.ranks),
                "activity": str(cluster.activity),
                "dim": cluster.dim,
                "label": cluster.label,
                "stack": list(cluster.stack),
            }
            for cluster in verdict.clusters
        ],
        "coverage": {
            "expected": verdict.coverage.expected,
            "captured": verdict.coverage.captured,
            "missing": format_ranks(verdict.coverage.missing),
            "failed": dict(verdict.coverage.failed),
        },
        "evidence": {
            "files_read": verdict.evidence.files_read,
            "ignored": list(verdict.evidence.ignored),
            "unreadable": dict(verdict.evidence.unreadable),
            "notes": list(verdict.evidence.notes),
        },
        "rules": verdict.rules,
        "culprit": _culprit_to_json(verdict.culprit),
        "causes": _causes_to_json(verdict.causes),
        "next": [_step_to_json(step) for step in verdict.next],
        **trigger,
    }


def _step_to_json(step: Step) -> dict[str, Any]:
    entry: dict[str, Any] = {"do": str(step.do), "machines": list(step.machines), "why": step.why}
    if step.cost is not None:
        costs = (step.cost.waiting, step.cost.machines, step.cost.people)
        entry["cost_gpu_min"] = {name: round(cost, 1) for name, cost in zip(COSTS, costs, strict=True)}
    return entry


def _culprit_to_json(culprit: Culprit | None) -> dict[str, Any] | None:
    if culprit is None:
        return None
    return {**_blamed_to_json(culprit), "causes": _causes_to_json(culprit.causes)}


def _blamed_to_json(blamed: Suspect | Culprit) -> dict[str, Any]:
    return {
        "ranks": format_ranks(blamed.ranks),
        "machines": list(blamed.machines),
        "probability": round(blamed.probability, 3),
        **_because_to_json(blamed.because),
    }


def _because_to_json(because: Sequence[VerdictReason]) -> dict[str, list[str]]:
    return {"because": [one.text for one in because], "because_codes": [one.code for one in because]}


def _causes_to_json(causes: Mapping[StallCause, float]) -> dict[str, float]:
    return {str(cause): round(p, 3) for cause, p in causes.items()}


def from_json(document: Mapping[str, Any]) -> Verdict:
    """Reads what `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    if document["schema"] != SCHEMA:
        raise ValueError(f"{document['schema']!r} is not {SCHEMA}")
    evidence, coverage = document["evidence"], document["coverage"]
    return Verdict(
        job_id=document["job"]["id"],
        world_size=document["job"]["world_size"],
        kind=Kind(document["verdict"]),
        confidence=document["confidence"],
        because=_because_from_json(document),
        suspects=tuple(Suspect(*_blamed(suspect)) for suspect in document["suspects"]),
        evict=Eviction(tuple(document["evict"]["machines"]), document["evict"]["coverage"]),
        groups=tuple(StuckGroup(g["dim"], parse_ranks(g["ranks"]), g["why"]) for g in document["groups"]),
        clusters=tuple(
            ClusterView(
                c["id"], parse_ranks(c["ranks"]), Activity(c["activity"]), c["dim"], c["label"], tuple(c["stack"])
            )
            for c in document["clusters"]
        ),
        coverage=Coverage(
            coverage["expected"], coverage["captured"], parse_ranks(coverage["missing"]), dict(coverage["failed"])
        ),
        evidence=EvidenceReport(
            evidence["files_read"],
            tuple(evidence["ignored"]),
            dict(evidence["unreadable"]),
            tuple(evidence.get("notes", ())),
        ),
        rules=document["rules"],
        culprit=_culprit_from_json(document.get("culprit")),
        causes=_causes_from_json(document),
        next=tuple(
            Step(Act(s["do"]), tuple(s["machines"]), s["why"], _cost_from_json(s)) for s in document.get("next", ())
        ),
        crash=_crash_from_json(document.get("crash")),
        check=_check_from_json(document.get("check")),
        numbers=WrongNumbers.from_json(document["numbers"]) if document.get("numbers") is not None else None,
    )


def _cost_from_json(document: Mapping[str, Any]) -> StepCost | None:
    cost = document.get("cost_gpu_min")
    return StepCost(*(float(cost[name]) for name in COSTS)) if cost is not None else None


def _check_from_json(document: Mapping[str, Any] | None) -> MachineCheck | None:
    return None if document is None else MachineCheck(str(document["machine"]), tuple(map(str, document["found"])))


def _crash_from_json(document: Mapping[str, Any] | None) -> JobCrash | None:
    if document is None:
        return None
    rank = document["rank"]
    return JobCrash(None if rank is None else Rank(int(rank)), str(document["machine"]), str(document["how"]))


def _culprit_from_json(document: Mapping[str, Any] | None) -> Culprit | None:
    return None if document is None else Culprit(*_blamed(document), _causes_from_json(document))


def _blamed(document: Mapping[str, Any]) -> tuple[tuple[Rank, ...], tuple[str, ...], float, tuple[VerdictReason, ...]]:
    ranks, machines = parse_ranks(document["ranks"]), tuple(document["machines"])
    return ranks, machines, document["probability"], _because_from_json(document)


def _because_from_json(document: Mapping[str, Any]) -> tuple[VerdictReason, ...]:
    """The reasons; verdicts of older versions have no codes."""
    texts = document["because"]
    codes = document.get("because_codes", [""] * len(texts))
    return tuple(VerdictReason(code, text) for code, text in zip(codes, texts, strict=True))


def _causes_from_json(document: Mapping[str, Any]) -> dict[StallCause, float]:
    return {StallCause(name): p for name, p in document.get("causes", {}).items()}
