"""What can be done to one rank of the demo's job from outside, and which verdict is right then.

Nothing of this runs inside the trainer: a stack shows the job's own code, stuck where a user's code would be stuck.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from hangdog.demo.job.settings import write_settings
from hangdog_models.verdict import Kind

#: Longer than one step, so that a stop strikes anywhere in it: compute, send, collective or between steps. Seconds.
STEP_SPAN_S = 0.7
#: Samples that take more memory than the job allows itself to grow (about 100 MB), however often it collects.
TOO_MANY_SAMPLES = 2_000_000
#: A report so rare that it never comes.
NEVER = 1_000_000_000
#: A checkpoint of the demo is written in milliseconds, on crowded cores in seconds. Seconds.
CHECKPOINT_S = 30.0
#: Shorter than the time between two checkpoints. Seconds.
LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class Victim:
    """The rank to break: its process, the folder it works in, and chance for what a fault leaves open."""

    pid: int
    folder: Path
    chance: random.Random


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to break a rank; `truth` says it to people, `right` is the kind of verdict that is correct.

    `also` are kinds that are correct, too: why a rank stands where it stands its stacks do not always tell.
    `found_there`: the rank that is struck is the one to find; where it skips what all others enter, those show it.
    """

    name: str
    truth: str
    right: Kind
    strike: Callable[[Victim], None]
    also: tuple[Kind, ...] = ()
    found_there: bool = True


def _stop_process(victim: Victim) -> None:
    time.sleep(victim.chance.uniform(0, STEP_SPAN_S))
    os.kill(victim.pid, signal.SIGSTOP)


def _silence_shards(victim: Victim) -> None:
    """Every shard becomes a FIFO nobody writes: opening it never returns, like a file on a dead network share."""
    replace_shards(victim.folder / "shards", lambda path, _name: os.mkfifo(path))


def replace_shards(shards: Path, make: Callable[[Path, str], object]) -> None:
    """Puts what `make(path, shard's name)` makes in the place of each shard, so that at no moment one is missing."""
    for shard in sorted(shards.iterdir()):
        other = shards.with_name(f"{shard.name}.other")
        make(other, shard.name)
        other.replace(shard)


def spoil_next_checkpoint(folder: Path, put: Callable[[Path], object]) -> None:
    """Puts something where the rank of this folder writes its next checkpoint; one that is being written is waited for.

    `FileExistsError` if that one does not end.
    """
    deadline = time.monotonic() + CHECKPOINT_S
    while True:
        try:
            put(folder / "model.part")
            return
        except FileExistsError:
            if time.monotonic() > deadline:
                raise
        time.sleep(LOOK_AGAIN_S)


def _block_checkpoint(victim: Victim) -> None:
    """The file the next checkpoint goes to is a FIFO nobody reads."""
    spoil_next_checkpoint(victim.folder, os.mkfifo)


def _change_settings(**settings: int) -> Callable[[Victim], None]:
    return lambda victim: write_settings(victim.folder / "settings.json", settings)


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        fault.name: fault
        for fault in (
            Fault(
                "dataloader",
                "its data loader workers block opening files that never answer",
                Kind.MACHINE,
                _silence_shards,
                also=(Kind.DEPENDENCY,),
            ),
            Fault("sigstop", "its process was stopped (SIGSTOP)", Kind.MACHINE, _stop_process),
            Fault(
                "lock",
                "its main thread and its log thread each wait for the lock the other holds",
                Kind.SOFTWARE,
                _change_settings(journal_backlog=1),
                also=(Kind.MACHINE,),
            ),
            Fault(
                "skip-collective",
                "it skips the all-reduce that every other rank enters: a bug of the code, its machine is healthy",
                Kind.SOFTWARE,
                _change_settings(report_every=NEVER),
                found_there=False,
            ),
            Fault(
                "checkpoint",
                "its checkpoint goes to a file that takes no data",
                Kind.MACHINE,
                _block_checkpoint,
                also=(Kind.DEPENDENCY, Kind.SOFTWARE),
            ),
            Fault(
                "gc",
                "it collects garbage for ever over millions of objects that are still in use",
                Kind.SOFTWARE,
                _change_settings(keep_samples=TOO_MANY_SAMPLES),
                also=(Kind.SLOW, Kind.MACHINE),  # the rank's own code at work: it gets on for all one can see
            ),
        )
    }
)
