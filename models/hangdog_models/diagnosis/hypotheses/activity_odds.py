"""The odds of each cause, by what the rank does that the others wait for."""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.stack import Reason
from hangdog_models.verdict import Activity


@dataclass(frozen=True, slots=True)
class Odds:
    """How a rank that waits for nobody came to stand where it stands: a fault of its machine, of the code, of a service."""

    machine: float
    software: float = 1.0
    dependency: float = 0.2
    slow: float = 0.3


#: Relative odds by what the awaited rank is doing. The scale is set by the demand that one root, seen standing still twice
#: and explaining every wait, reaches 0.95, and one seen once does not. They order causes as
#: published incidents do, and were set with the simulated incidents of bench/accuracy in view.
ODDS: Mapping[Activity, Odds] = {
    Activity.STOPPED: Odds(80),
    Activity.DEAD: Odds(40, software=1.5),
    Activity.TEARDOWN: Odds(8, software=10),
    Activity.STORAGE: Odds(24, software=0.5, dependency=4),
    Activity.CHECKPOINT: Odds(24, dependency=4),
    Activity.DATALOADER: Odds(24, software=0.5, dependency=1),
    Activity.LOCK: Odds(24),
    Activity.GIL: Odds(24),
    Activity.GC: Odds(24),
    Activity.NETWORK: Odds(24, dependency=4),
    Activity.COMPILE: Odds(2, software=0.5, slow=3.3),  # takes minutes on sound machines
    Activity.LAUNCH: Odds(1),
    Activity.UNKNOWN: Odds(24, dependency=0.5, slow=0.7),
    Activity.COMPUTE: Odds(18, slow=1.5),
    Activity.IDLE: Odds(1, software=8),
    Activity.MISSING: Odds(1),
    Activity.DEVICE_SYNC: Odds(40, software=0.5),  # waits for its own device: counters show that it is behind
}
#: A host at work inside of a collectives library's launch: a bug of the library as likely as a fault of the machine
#: (marin-community/marin#7344: NCCL 2.28.9 on sound machines).
LAUNCHING = Odds(8, software=6)
#: A kernel that is loaded for longer than a moment is held up by the device or its driver; compiling it takes its time.
LOAD = "load"
LOADING = Odds(24, software=0.5, slow=0.7)
#: A capture that fails for reasons of the machine says more than one that was never made; one refused says nothing.
OF_FAILED_CAPTURE: Mapping[Reason, Odds] = {
    Reason.NO_AGENT: Odds(12),
    Reason.TIMED_OUT: Odds(2),
    Reason.RESTARTED: Odds(3, software=4),
    Reason.NOT_PERMITTED: Odds(0.5),
    Reason.TOOL_MISSING: Odds(0.5),
}


def odds_of(state: RankState) -> Odds:
    """The odds for a rank that stands like this while others wait for it."""
    if state.remote_storage:
        return Odds(24, software=0.5, dependency=100)
    if state.activity is Activity.MISSING and state.missing:
        return OF_FAILED_CAPTURE.get(state.missing.reason, ODDS[Activity.MISSING])
    # So stood the odd rank of 5 of 467 simulated faults of the code, and of 896 hosts at fault none.
    if state.activity is Activity.COMPUTE and state.queued:
        return ODDS[Activity.LAUNCH]
    if state.activity is Activity.LAUNCH and state.operation == "ncclGroupEnd":
        return LAUNCHING
    if state.activity is Activity.COMPILE and state.operation == LOAD:
        return LOADING
    return ODDS.get(state.activity, ODDS[Activity.UNKNOWN])
