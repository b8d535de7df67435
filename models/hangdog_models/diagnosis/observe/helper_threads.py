"""The thread of its own process that a rank waits for: what that thread is at is what the rank is held up by."""

from collections.abc import Sequence
from dataclasses import replace

from hangdog_models.diagnosis.observe.activity import SERVICES, RankState, main_thread
from hangdog_models.diagnosis.observe.call_site import place_of
from hangdog_models.rules.ruleset import RuleSet, Wait
from hangdog_models.stack import Frame, ProcessTrace, Thread
from hangdog_models.verdict import Activity

#: Files of CPython in which a thread waits for another one: the caller tells for which.
_WAITS = ("threading.py", "queue.py", "concurrent/futures/_base.py", "concurrent/futures/thread.py")
#: A pool's thread that has something to do.
_POOL, _FUTURES = "concurrent/futures/thread.py", "concurrent/futures/_base.py"
#: The rule by which such a rank is known.
HELPED = "a thread of its own that it waits for"


def of_helper(state: RankState, trace: ProcessTrace, rules: RuleSet) -> RankState:
    """The state of a rank whose main thread waits for a lock, with what the thread that it waits for is at.

    That one runs in a pool whose result is awaited, or has a function of the file whose code waits on its stack. Only a
    call to storage, a checkpoint or a service counts: every process has threads that wait for something to do.
    """
    main = main_thread(trace)
    if state.activity is not Activity.LOCK or main is None or state.busy:
        return state
    waits_in = next((frame.file for frame in reversed(main.frames) if not frame.file.endswith(_WAITS)), "")
    of_pool = any(frame.file.endswith(_FUTURES) for frame in main.frames)
    for thread in trace.threads:
        if thread is main or not _serves(thread, waits_in, of_pool):
            continue
        place = place_of(thread.frames, rules)
        if place.rule is not None and place.rule.activity in SERVICES and place.rule.wait is Wait.NONE:
            frames = (*main.frames, *thread.frames)
            return replace(state, activity=place.rule.activity, label=place.label, rule=HELPED, frames=frames)
    return state


def _serves(thread: Thread, waits_in: str, of_pool: bool) -> bool:
    if of_pool and _in_pool(thread.frames):
        return True
    return bool(waits_in) and any(frame.file == waits_in for frame in thread.frames)


def _in_pool(frames: Sequence[Frame]) -> bool:
    return any(frame.function == "run" and frame.file.endswith(_POOL) for frame in frames)
