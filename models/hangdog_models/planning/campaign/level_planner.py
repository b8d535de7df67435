"""The test levels as diagnostics of the planner, and the outcome of a launch by its machines' reports.

Times are of launches on a CPU with gloo, doubled for GPUs on which they have not been run. They only decide which test
is planned first. The shares of faults are equal, for none are published.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from hangdog_models.planning.campaign.fault import FailureMode
from hangdog_models.planning.campaign.launch import GIVEN_UP, Diagnostic, Launch, LaunchOutcome, LaunchResult
from hangdog_models.reading.hardware.test_report import Diagnosed

#: How a machine may fail: memory; matrix units, always or at times; units that only a training step uses; what joins
#: its devices; network cards; whatever only a job shows. A faulty GPU may fail one small run of some (SDCHUNTER: one
#: of 50, at worst).
MEMORY, PRODUCTS, RARELY, BESIDE = "memory", "products", "products at times", "computing beside products"
INSIDE, NETWORK, IN_A_JOB = "between its devices", "network", "in a job"
MODES = (
    FailureMode(MEMORY, 1.0, 1 / 7),
    FailureMode(PRODUCTS, 1.0, 1 / 7),
    FailureMode(RARELY, 0.2, 1 / 7),
    FailureMode(BESIDE, 1.0, 1 / 7),
    FailureMode(INSIDE, 1.0, 1 / 7),
    FailureMode(NETWORK, 1.0, 1 / 7),
    FailureMode(IN_A_JOB, 1.0, 1 / 7),
)
_COMPUTING = (MEMORY, PRODUCTS, RARELY, BESIDE)
#: Offline tests find some 70 % of the bad GPUs of the field (ByteRobust, on the vendor's extended test).
_MISS = 0.3
#: Failures of one launch that are given in words: of a replay that crashes each rank says its own.
_IN_WORDS = 8
#: Machines of one launch between machines: with three links or more they are judged by each other.
_MOST = 4

#: Seconds that one replay may take when nobody says: loading a job takes a minute, and it hangs until the end.
REPLAY_S = 180.0

#: The diagnostic of each level, by the name under which the agent reports it. A replay takes as long as it is given.
LADDER: Mapping[int, Diagnostic] = {
    1: Diagnostic("one device", 15.0, 20.0, miss=_MISS, blind=(BESIDE, INSIDE, NETWORK, IN_A_JOB)),
    2: Diagnostic("inside the machine", 20.0, 20.0, miss=0.1, blind=(*_COMPUTING, NETWORK, IN_A_JOB)),
    3: Diagnostic("between machines", 15.0, 30.0, miss=0.1, least=2, most=_MOST, network=True,
                  blind=(*_COMPUTING, INSIDE, IN_A_JOB)),
    4: Diagnostic("bit-wise alignment", 20.0, 20.0, miss=_MISS, blind=(MEMORY, INSIDE, NETWORK, IN_A_JOB)),
    5: Diagnostic("replay", REPLAY_S, miss=_MISS, least=2, most=_MOST, network=True,
                  blind=(*_COMPUTING, INSIDE, NETWORK)),
}  # fmt: skip
#: The level that replays a program, and is launched in groups of its own (replay_planner.py).
REPLAY = 5


@dataclass(frozen=True, slots=True)
class LevelAnswer:
    """What one machine of a launch answered. `silent`: why there is no report. `out`: it will not answer again."""

    report: Diagnosed | None = None
    silent: str = ""
    out: bool = False


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a launch ended. If inconclusive, `silent` did not answer and `unable` have nothing that it could test.

    Both map a machine to its reason. `out` are the silent ones that will not answer again.
    """

    result: LaunchResult
    reason: str = ""
    silent: Mapping[str, str] = field(default_factory=dict)
    unable: Mapping[str, str] = field(default_factory=dict)
    out: frozenset[str] = frozenset()


def diagnostics(levels: Collection[int], machines: int) -> tuple[Diagnostic, ...]:
    """Those of the levels that can be launched on so many machines."""
    return tuple(LADDER[level] for level in sorted(levels) if LADDER[level].least <= machines)


def modes(chosen: Collection[Diagnostic]) -> tuple[FailureMode, ...]:
    """The failure modes that one of these could show: nothing would be learned about others."""
    seen = [mode for mode in MODES if any(mode.name not in one.blind for one in chosen)]
    share = sum(mode.share for mode in seen)
    return tuple(FailureMode(mode.name, mode.manifestation, mode.share / share) for mode in seen)


def concluded(diagnostic: Diagnostic, answers: Mapping[str, LevelAnswer]) -> Conclusion:
    """The outcome of a launch: one machine's failure fails it, and only all machines together pass it.

    A machine is silent only by its own missing answer, never because others say so: they may be cut off themselves.
    """
    reports = {name: one.report for name, one in answers.items() if one.report is not None}
    if failures := [words for report in reports.values() if (words := _failures(report))]:
        distinct = list(dict.fromkeys(failures))  # members of a group report the same, but for a replay
        more = f"; and {len(distinct) - _IN_WORDS} more" if len(distinct) > _IN_WORDS else ""
        return Conclusion(LaunchResult.FAIL, "; ".join(distinct[:_IN_WORDS]) + more)
    silent = {name: one.silent for name, one in answers.items() if one.report is None}
    unable = {name: why for name, report in reports.items() if (why := report.skipped.get(diagnostic.name))}
    open_ = {name: why for name, report in reports.items() if name not in unable and (why := _open(diagnostic, report))}
    reported = silent or unable or open_
    if not reported:
        return Conclusion(LaunchResult.PASS)
    because = "; ".join(f"{name}: {why}" for name, why in reported.items())
    return Conclusion(
        LaunchResult.INCONCLUSIVE, because, silent, unable, frozenset(n for n in silent if answers[n].out)
    )


def outcomes(launch: Launch, came: Conclusion) -> tuple[LaunchOutcome, ...]:
    """The outcomes for the planner. If single machines are the reason for no result, the outcome is theirs alone."""
    if came.result is not LaunchResult.INCONCLUSIVE or not (came.silent or came.unable):
        return (LaunchOutcome(launch, came.result, came.reason),)
    blamed = [*came.silent.items(), *list(came.unable.items()) * GIVEN_UP]
    return tuple(
        LaunchOutcome(replace(launch, machines=(name,)), LaunchResult.INCONCLUSIVE, why) for name, why in blamed
    )


def _failures(report: Diagnosed) -> str:
    return "; ".join(f"{one.test}: {one.says}" for one in report.tests if one.outcome == "fail")


def _open(diagnostic: Diagnostic, report: Diagnosed) -> str:
    """Why a report without failures is not a pass; empty if it is one."""
    mine = [one for one in report.tests if one.of == diagnostic.name]
    reported = [f"{one.test}: {one.says}" for one in mine if one.outcome != "pass"]
    return "; ".join(reported) if mine else "its report tells nothing of this test"
