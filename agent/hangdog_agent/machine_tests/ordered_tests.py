"""Runs the levels of the ladder that a server orders, and writes what they found: in a thread, for it waits for its children."""

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hangdog_agent.machine_tests.gpu_settings_backup import GpuSettingsBackup
from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level_runner import climb, to_json
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.standard_levels import WantedLevels, standard
from hangdog_agent.machine_tests.torch_engine import Engine

#: What a server may order. No command comes over the wire: level 5 replays what this machine knows by name.
ORDERED = (1, 2, 3, 4, 5)
#: Bytes of a report that are sent; digests, the larger part of a long one, are left out of one that has more.
REPORT_BYTES = 512 << 10
#: How often a level may be repeated at most, as a multiple of its settings: more than any planner has use for.
REPETITIONS = 64
_MEMBER = re.compile(r"\bmember (\d{1,4})\b")


@dataclass(frozen=True, slots=True)
class OrderedTest:
    """What is tested: `members` by name, of which this machine is number `member`; `meet` is empty for a machine alone.

    `command` is what this machine's own settings give level 5 to replay; without one it replays a program of ours.
    """

    levels: tuple[int, ...]
    repetitions: int
    deadline_s: float
    members: tuple[str, ...]
    member: int
    meet: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kit:
    """What a machine is tested with; `processes` stand for devices where there are none."""

    engine: Engine = field(default_factory=Engine)
    settings: LevelSettings = field(default_factory=LevelSettings)
    processes: int = 1

    def run(self, order: OrderedTest, stop: threading.Event, ready: threading.Event) -> str:
        """The report as JSON; takes `deadline_s` at most, and ends early once `stop` is set. `ready`: now the test begins."""
        until = time.monotonic() + order.deadline_s
        engine, settings = self.engine, repeated(self.settings, order.repetitions)
        settings = replace(settings, replay_s=order.deadline_s)  # whoever orders a replay knows how long it takes
        probe = engine.probe(min(settings.start_s, order.deadline_s), stop)
        group = Group(order.meet, order.member, len(order.members)) if order.meet else Group()
        wish = WantedLevels(self.processes, group=group, command=order.command, ordered=True)
        levels = standard(engine, probe, settings, wish, order.levels)
        backup = GpuSettingsBackup()
        ready.set()
        diagnosis = climb(levels, max(0.0, until - time.monotonic()), stop, backup=backup)
        tools = {"torch": probe.torch, "python": engine.interpreter}
        document = to_json(diagnosis, order.members[order.member], tools)
        parts = {f"cuda:{gpu.get('index')}": uuid for uuid, gpu in backup.before.items()}
        return written(_named({**document, "parts": parts}, order.members))


def repeated(settings: LevelSettings, times: int) -> LevelSettings:
    """Settings with which a level repeats all that it repeats so many times as often."""
    times = min(max(times, 1), REPETITIONS)
    return replace(
        settings,
        memory_passes=settings.memory_passes * times,
        gemm_repetitions=settings.gemm_repetitions * times,
        alignment_repetitions=settings.alignment_repetitions * times,
        pair_repetitions=settings.pair_repetitions * times,
    )


def written(document: Mapping[str, Any]) -> str:
    """A report as it is sent; one that is too long goes without its digests."""
    text = json.dumps(document)
    if len(text) <= REPORT_BYTES:
        return text
    levels = [
        {**level, "results": [{**result, "digests": {}} for result in level["results"]]} for level in document["levels"]
    ]
    return json.dumps({**document, "levels": levels})


def _named(document: Mapping[str, Any], members: Sequence[str]) -> dict[str, Any]:
    """The report with machines' names where the level knows members by number only."""

    def name(value: Any) -> Any:
        if isinstance(value, str):
            return _MEMBER.sub(lambda found: _of(found, members), value)
        if isinstance(value, list):
            return [name(each) for each in value]
        return {key: name(each) for key, each in value.items()} if isinstance(value, dict) else value

    return {**document, "levels": name(document["levels"])} if len(members) > 1 else dict(document)


def _of(found: re.Match[str], members: Sequence[str]) -> str:
    number = int(found[1])
    return members[number] if number < len(members) else found[0]
