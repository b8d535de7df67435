"""What /proc says of a process at a look: its state, and the processor time and wakes that follow from what it did since the first look."""

from math import inf

from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.faults.stalls import Stall
from accuracy.simulator.phases.timeline import Moment
from hangdog_models.stack import ProcessState

CMDLINE = "/usr/bin/python3 -u train.py"
#: How often a second a host that trains is woken.
_WAKES = 200.0
#: The share of its processor time that the main thread uses.
_MAIN = 0.9


def pid_of(rank: int) -> int:
    return 4000 + 7 * rank


def child_pid(rank: int) -> int:
    return 500_000 + pid_of(rank)


def child_of(rank: int, moment: Moment) -> ProcessState:
    """A process of the rank's own, which works for it."""
    return ProcessState(child_pid(rank), "R", "0", "running", round(2.0 + moment.helped, 2), "python3", CMDLINE)


def state_of(
    scene: Scene, rank: int, *, number: int, runs: bool, waits_s: float, stall: Stall | None, moment: Moment | None
) -> ProcessState:
    """`runs`: it is on a processor; `waits_s`: for so long it has been in a wait, 0 where it is in none."""
    elapsed = number * scene.gap
    if rank in scene.stopped:
        letter, wchan, syscall = "T", "do_signal_stop", "-1"
    elif stall is not None:
        letter, wchan, syscall = stall.state, stall.wchan[rank % len(stall.wchan)], stall.syscall
    elif moment is not None:
        letter, wchan, syscall = moment.step.state, moment.step.wchan, moment.step.syscall
    elif runs:
        letter, wchan, syscall = "R", "0", "running"
    else:
        letter, wchan, syscall = "S", "futex_do_wait", "202"
    if moment is not None:
        ran, wakes, others = moment.ran, moment.wakes, moment.helped if moment.step.beside else 0.0
    else:
        # who sleeps is woken by nothing; before that a job that lives wakes each of its hosts again and again
        worked = max(0.0, elapsed - waits_s) if scene.looks[-1] != inf and not stall else 0.0
        ran = elapsed if letter == "R" else worked
        wakes, others = _WAKES * ran, 0.0
    spent = 1000.0 + 0.37 * rank
    return ProcessState(
        pid_of(rank), letter, wchan, syscall, round(spent + ran + others, 2), "python3", CMDLINE,
        round(_MAIN * spent + ran, 2), 5000 + 3 * rank + round(wakes),
    )  # fmt: skip
