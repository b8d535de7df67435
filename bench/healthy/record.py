"""Plays the healthy phases of each framework in as few jobs as it can, and records each."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from frameworks.cases import Case
from frameworks.environment import Framework
from frameworks.job import Job
from frameworks.looks import elsewhere
from frameworks.record import brought_about, ends
from frameworks.served import server
from hangdog.demo.prctl import adopt_orphans
from hangdog_models.errors import OurFault
from healthy.recording import Recording, packed, place_of
from healthy.sampler import Sampler

#: Training before the phase, the phase, and training after it. Seconds.
BEFORE_S, PHASE_S, AFTER_S = 8.0, 26.0, 5.0
#: The same of phases that go on by single calls which take long. Seconds.
LONG_S = {"evaluation-c": 60.0, "training": 45.0}


def record_all(frameworks: Sequence[Framework], phases: Sequence[Case], folder: Path, made: str) -> int:
    """Records all phases of all frameworks, on the date `made`; answers how many could not be recorded."""
    adopt_orphans()
    failed = 0
    with server() as address:
        for framework in frameworks:
            due = [phase for phase in phases if phase.name not in framework.without]
            if not framework.interruptible:
                due.sort(key=lambda phase: bool(phase.act))
            number = 0
            while due:
                number += 1
                before = len(due)
                try:
                    with Job(framework, folder / f"{framework.name}-{number}", address) as job:
                        while due:
                            phase = due.pop(0)
                            _record(job, phase, made)
                            if not ends(framework, phase) or phase.name == "compile":
                                break
                except (OurFault, OSError) as error:
                    failed += 1
                    print(f"  NOT RECORDED: {error}", flush=True)
                    if len(due) == before:  # no job came to its first steps
                        break
    return failed


def _record(job: Job, phase: Case, made: str) -> None:
    ranks = phase.ranks(job.framework.name)
    began = time.monotonic()
    with Sampler(job.pids, job.steps) as sampler:
        time.sleep(BEFORE_S)
        with ExitStack() as stack:
            stack.enter_context(brought_about(job, phase, ranks))
            begins = sampler.now()
            time.sleep(LONG_S.get(phase.name, PHASE_S))
            stop = sampler.now()
            alive = job.alive()
            if phase.act and ends(job.framework, phase):
                job.release(ranks)
        if not alive:
            raise OurFault(f"{phase.name}: a rank has ended by itself: {job.last_words()}")
        if ends(job.framework, phase) and phase.name != "compile":
            job.wait_on(phase.name)
            time.sleep(AFTER_S)
    frames, threads, states, reasons = sampler.tables.rows()
    recording = Recording(
        framework=job.framework.name,
        phase=phase.name,
        made=made,
        doers=ranks,
        begins=round(begins, 3),
        ends=round(stop, 3),
        cores=os.cpu_count() or 1,
        runnable=sampler.runnable,
        steps=sampler.steps,
        beats=sampler.beats,
        processes=sampler.processes(),
        frames=frames,
        threads=threads,
        states=states,
        reasons=reasons,
    )
    text = elsewhere(msgspec.json.encode(recording).decode(), job.folder)
    place = place_of(job.framework.name, phase.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(packed(text))
    looks = sum(len(process.looks) for process in recording.processes)
    print(
        f"{job.framework.name}-{phase.name}: {time.monotonic() - began:.0f} s, {looks} looks, "
        f"{len(threads)} stacks, {place.stat().st_size} bytes",
        flush=True,
    )
