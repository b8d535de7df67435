"""The thread of its own process that a rank waits for: what that thread is at is what the rank is held up by."""

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
    # native frames are the same C library in every thread
    callers = [frame.file for frame in main.frames if not frame.native and not _in(frame, *_WAITS)]
    waits_in = callers[-1] if callers else ""
    of_pool = any(_in(frame, _FUTURES) for frame in main.frames)
    for thread in trace.threads:
        if thread is main or not _serves(thread, waits_in, of_pool):
            continue
        place = place_of(thread.frames, rules)
        if place.rule is not None and place.rule.activity in SERVICES and place.rule.wait is Wait.NONE:
            frames = (*main.frames, *thread.frames)
            return replace(state, activity=place.rule.activity, label=place.label, rule=HELPED, frames=frames)
    return state


def _serves(thread: Thread, waits_in: str, of_pool: bool) -> bool:
    if of_pool and any(frame.function == "run" and _in(frame, _POOL) for frame in thread.frames):
        return True
    return bool(waits_in) and any(frame.file == waits_in and not frame.native for frame in thread.frames)


def _in(frame: Frame, *files: str) -> bool:
    return any(frame.file == file or frame.file.endswith(f"/{file}") for file in files)
