"""The odds of each cause, by what the awaited rank does."""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import CHILD, NO_RULE, RankState
from hangdog_models.diagnosis.observe.rank_state_reader import WORKER_ASLEEP, WORKERS_ASLEEP
from hangdog_models.diagnosis.waits.collective_counters import BY_DEVICE, COUNTED, LEFT_OUT, NOT_CALLED
from hangdog_models.diagnosis.waits.launches_behind import BY_LAUNCHES
from hangdog_models.diagnosis.waits.ras_waits import BY_RAS
from hangdog_models.rules.likelihoods import by_cause
from hangdog_models.stack import Reason
from hangdog_models.verdict import Activity


@dataclass(frozen=True, slots=True)
class Odds:
    """Odds of why a root is where it is: a fault of its machine, of the code, of a service, or mere slowness."""

    machine: float
    software: float
    dependency: float
    slow: float


def _odds(name: str) -> Odds:
    """The odds of a row of the table. A cause that the row lacks has the odds of `doing_anything`."""
    return Odds(**{**by_cause("doing_anything"), **by_cause(name)})


#: Odds relative to each other, by what the awaited rank does.
ODDS: Mapping[Activity, Odds] = {
    Activity.STOPPED: _odds("doing_stopped"),
    Activity.DEAD: _odds("doing_dead"),
    Activity.STORAGE: _odds("doing_storage"),
    Activity.LAUNCH: _odds("doing_launch"),
    Activity.UNKNOWN: _odds("doing_unknown"),
    Activity.IDLE: _odds("doing_idle"),
    Activity.MISSING: _odds("doing_missing"),
    Activity.DEVICE_SYNC: _odds("doing_device_sync"),
}
WHY_AT_A_LOCK = by_cause("why_at_a_lock")
#: Odds of the causes relative to each other, where the call site does not point at the machine alone.
_CAUSES: Mapping[Activity, Mapping[str, float]] = {
    Activity.LOCK: WHY_AT_A_LOCK,
    Activity.GIL: WHY_AT_A_LOCK,
    Activity.NETWORK: by_cause("why_at_a_request"),
    Activity.COMPUTE: by_cause("why_computing"),
    Activity.GC: by_cause("why_collecting"),
    Activity.UNKNOWN: by_cause("why_where_no_rule_knows"),
    Activity.CHECKPOINT: by_cause("why_at_a_checkpoint"),
    Activity.COMPILE: by_cause("why_compiling"),
    Activity.DATALOADER: by_cause("why_at_its_loader"),
    Activity.TEARDOWN: by_cause("why_on_its_way_out"),
    Activity.RENDEZVOUS: by_cause("why_late_at_the_start"),
}
WHY_IN_AN_OPERATOR = by_cause("why_in_an_operator")
WHY_BEHIND_IN_ALL_TO_ALL = by_cause("why_behind_in_all_to_all")
#: Collectives before which ranks have unequal work by nature: some experts get more tokens than others.
_UNEVEN = ("all_to_all", "alltoall")
WHY_AT_ANOTHER_THREAD = by_cause("why_at_another_thread")
#: Calls in which a thread waits for another thread of its process, as for an upload.
_OF_ANOTHER_THREAD = ("result", "exception", "as_completed", "join")
WHY_IDLE = by_cause("why_idle")
WHY_ASLEEP_BY_ITS_TIMER = by_cause("why_asleep_by_its_timer")
WHY_AT_ANOTHER_PROCESS = by_cause("why_at_another_process")
WHY_WRITING = by_cause("why_writing")
WHY_AT_A_FILE = by_cause("why_at_a_file")
_OF_WORKERS = {WORKER_ASLEEP: by_cause("why_a_worker_sleeps"), WORKERS_ASLEEP: by_cause("why_all_workers_sleep")}
LIBRARY_LAUNCH = _odds("doing_library_launch")
#: The operation of a rank that loads a compiled kernel.
LOAD = "load"
KERNEL_LOAD = _odds("doing_kernel_load")
BEHIND_BY_LAUNCHES = _odds("doing_behind_by_launches")
HAS_NOT_CALLED = _odds("doing_not_called")
REMOTE_STORAGE = _odds("doing_remote_storage")
FAILED_TIMED_OUT = _odds("failed_timed_out")
OF_FAILED_CAPTURE: Mapping[Reason, Odds] = {
    Reason.NO_AGENT: _odds("failed_no_agent"),
    Reason.TIMED_OUT: FAILED_TIMED_OUT,
    Reason.UNREACHABLE: FAILED_TIMED_OUT,
    Reason.RESTARTED: _odds("failed_restarted"),
    Reason.NOT_PERMITTED: _odds("failed_not_permitted"),
    Reason.TOOL_MISSING: _odds("failed_tool_missing"),
    Reason.MOVED: _odds("failed_moved"),
}


def odds_of(state: RankState) -> Odds:
    """The odds for a rank in this state while others wait for it."""
    if state.remote_storage:
        return REMOTE_STORAGE
    if state.rule == BY_LAUNCHES or (state.rule == BY_DEVICE and state.operation == LEFT_OUT):
        return BEHIND_BY_LAUNCHES
    if state.rule == NOT_CALLED:
        return HAS_NOT_CALLED
    if state.activity is Activity.DEVICE_SYNC and state.waits and state.rule not in (*COUNTED, BY_RAS):
        return ODDS[Activity.LAUNCH]  # no counter tells that its device is late: its peers' waits end there
    if state.activity is Activity.MISSING and state.missing:
        return OF_FAILED_CAPTURE.get(state.missing.reason, ODDS[Activity.MISSING])
    if state.activity is Activity.COMPUTE and state.queued:
        return ODDS[Activity.LAUNCH]
    if state.activity is Activity.LAUNCH and state.operation == "ncclGroupEnd":
        return LIBRARY_LAUNCH
    if state.activity is Activity.COMPILE and state.operation == LOAD:
        return KERNEL_LOAD
    return ODDS.get(state.activity, ODDS[Activity.UNKNOWN])


def causes_of(state: RankState) -> Mapping[str, float] | None:
    """The odds of all causes of this state, relative to each other; None where a row of `odds_of` has each cause."""
    if state.rule == BY_DEVICE and (state.operation or "").startswith(_UNEVEN):
        return WHY_BEHIND_IN_ALL_TO_ALL
    if state.queued or state.rule in (*COUNTED, BY_RAS, NOT_CALLED):
        return None
    if state.rule in _OF_WORKERS:
        return _OF_WORKERS[state.rule]
    if state.passing:
        return WHY_WRITING
    if state.activity in (Activity.COMPUTE, Activity.UNKNOWN) and in_an_operator(state):
        return WHY_IN_AN_OPERATOR
    if state.activity is Activity.STORAGE and not state.in_kernel and not state.remote_storage:
        return WHY_AT_A_FILE
    if state.activity is Activity.LOCK and state.label in _OF_ANOTHER_THREAD:
        return WHY_AT_ANOTHER_THREAD
    if state.activity is Activity.UNKNOWN and state.dozing:
        return WHY_ASLEEP_BY_ITS_TIMER
    if state.activity is Activity.UNKNOWN and state.awaits is not None and state.operation != CHILD:
        return WHY_AT_ANOTHER_PROCESS
    if state.activity is Activity.UNKNOWN and not state.sleeping and state.operation != CHILD:
        return WHY_IDLE
    return None if state.activity is Activity.COMPILE and state.operation == LOAD else _CAUSES.get(state.activity)


def in_an_operator(state: RankState) -> bool:
    """Whether it computes in a step of training as its peers do, not in a function of the user's."""
    return state.operation not in (None, CHILD) and state.rule != NO_RULE
