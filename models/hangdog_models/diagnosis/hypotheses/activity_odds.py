"""The odds of each cause, by what the rank does that the others wait for."""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.rules.likelihoods import by_cause
from hangdog_models.stack import Reason
from hangdog_models.verdict import Activity


@dataclass(frozen=True, slots=True)
class Odds:
    """How a rank that waits for nobody came to stand where it stands: a fault of its machine, of the code, of a service."""

    machine: float
    software: float
    dependency: float
    slow: float


def _odds(name: str) -> Odds:
    """The odds of a row of the table; where it is silent of a cause, those at any activity."""
    return Odds(**{**by_cause("doing_anything"), **by_cause(name)})


#: Relative odds by what the awaited rank is doing.
ODDS: Mapping[Activity, Odds] = {
    Activity.STOPPED: _odds("doing_stopped"),
    Activity.DEAD: _odds("doing_dead"),
    Activity.TEARDOWN: _odds("doing_teardown"),
    Activity.STORAGE: _odds("doing_storage"),
    Activity.CHECKPOINT: _odds("doing_checkpoint"),
    Activity.DATALOADER: _odds("doing_dataloader"),
    Activity.LOCK: _odds("doing_lock"),
    Activity.GIL: _odds("doing_gil"),
    Activity.GC: _odds("doing_gc"),
    Activity.NETWORK: _odds("doing_network"),
    Activity.COMPILE: _odds("doing_compile"),
    Activity.LAUNCH: _odds("doing_launch"),
    Activity.UNKNOWN: _odds("doing_unknown"),
    Activity.COMPUTE: _odds("doing_compute"),
    Activity.IDLE: _odds("doing_idle"),
    Activity.MISSING: _odds("doing_missing"),
    Activity.DEVICE_SYNC: _odds("doing_device_sync"),
}
LIBRARY_LAUNCH = _odds("doing_library_launch")
#: The operation of a rank that loads a compiled kernel.
LOAD = "load"
KERNEL_LOAD = _odds("doing_kernel_load")
REMOTE_STORAGE = _odds("doing_remote_storage")
OF_FAILED_CAPTURE: Mapping[Reason, Odds] = {
    Reason.NO_AGENT: _odds("failed_no_agent"),
    Reason.TIMED_OUT: _odds("failed_timed_out"),
    Reason.RESTARTED: _odds("failed_restarted"),
    Reason.NOT_PERMITTED: _odds("failed_not_permitted"),
    Reason.TOOL_MISSING: _odds("failed_tool_missing"),
}


def odds_of(state: RankState) -> Odds:
    """The odds for a rank that stands like this while others wait for it."""
    if state.remote_storage:
        return REMOTE_STORAGE
    if state.activity is Activity.MISSING and state.missing:
        return OF_FAILED_CAPTURE.get(state.missing.reason, ODDS[Activity.MISSING])
    if state.activity is Activity.COMPUTE and state.queued:
        return ODDS[Activity.LAUNCH]
    if state.activity is Activity.LAUNCH and state.operation == "ncclGroupEnd":
        return LIBRARY_LAUNCH
    if state.activity is Activity.COMPILE and state.operation == LOAD:
        return KERNEL_LOAD
    return ODDS.get(state.activity, ODDS[Activity.UNKNOWN])
