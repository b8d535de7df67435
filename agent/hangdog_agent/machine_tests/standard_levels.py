"""The ladder of this machine, put together from what is wished for."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import Level
from hangdog_agent.machine_tests.levels.alignment import Alignment
from hangdog_agent.machine_tests.levels.between_machines import Between
from hangdog_agent.machine_tests.levels.dcgm import Dcgm
from hangdog_agent.machine_tests.levels.inside_machine import Inside
from hangdog_agent.machine_tests.levels.passive import Passive
from hangdog_agent.machine_tests.levels.replay import Replay
from hangdog_agent.machine_tests.levels.single_device import OneDevice
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Probe
from hangdog_models.planning.alignment import Digests

#: All levels, and those that need nobody else.
LEVELS = (0, 1, 2, 3, 4, 5)
ALONE = (0, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class WantedLevels:
    """What a diagnosis is about beyond the machine itself: see the levels that use it. `ordered`: by a server."""

    processes: int = 1
    golden: Mapping[str, Digests] = field(default_factory=dict)
    group: Group = field(default_factory=Group)
    command: tuple[str, ...] = ()
    folder: str = "/"
    known: str = ""
    ordered: bool = False


def standard(
    engine: Engine, probe: Probe, settings: LevelSettings, wish: WantedLevels, wanted: Collection[int]
) -> tuple[Level, ...]:
    """The levels of the numbers wanted, the cheapest first."""
    all_: tuple[Level, ...] = (
        Passive(settings, engine.environ, wish.known),
        Dcgm(settings, engine.environ),
        OneDevice(engine, probe, settings, wish.processes, golden=wish.golden),
        Inside(engine, probe, settings, wish.processes),
        Between(engine, probe, settings, wish.group),
        Alignment(engine, probe, settings, wish.processes, wish.golden),
        Replay(
            probe, settings, wish.group, wish.command, wish.processes, wish.folder, engine.environ,
            engine if wish.ordered else None,
        ),
    )  # fmt: skip
    return tuple(level for level in all_ if level.number in wanted)
