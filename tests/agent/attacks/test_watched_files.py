"""A trainer whose log or heartbeat leads to what only root may read: no such file is opened, nor told of, nor waited for."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from attacking.setuid import become_setuid, setuid
from attacking.stage import KINDS, Attacker, Watched, attacking, needs_root, settled
from hangdog_agent.discovery.environ_names import HEARTBEAT, LOG
from hangdog_agent.stalls.progress.progress_signal import SignalKind
from hangdog_agent.stalls.progress.sources import ProgressSources
from hangdog_agent.stalls.settings import StallSettings
from support.fakes import targets
from support.fakes.recorder_asked import TOOLS, by_pid

pytestmark = [needs_root, pytest.mark.parallel]

#: Files are looked at whenever that is asked for, and nothing else is.
SETTINGS = StallSettings(log_every_s=0.001, touch_every_s=0.001, ras_every_s=0.0, traffic_every_s=0.0)
#: Looks at what must never be seen, and the pause between them. Seconds.
LOOKS, PAUSE_S = 8, 0.05
#: Looks in a race, and how many of them before everything is looked at anew, for what was no file is left alone for a while.
MANY, LOOKS_EACH = 1000, 50
IDLE = """
os.chdir(given["home"])
if given["victims"]:
    os.symlink(given["victims"], "e")
ready()
wait()
"""
#: Becomes another program once it is told to.
BECOME = """
os.chdir(given["home"])
os.symlink(given["victims"], "e")
ready()
os.read(0, 1)
os.execv(given["program"], ["python", "3600"])
"""
#: Writes steps into a log of its own, whose folder changes places with a link to the victim's once `go` is there.
WORK = """
os.chdir(given["home"])
os.mkdir("d")
os.symlink(given["victims"], "e")
fill()
steps = open("d/log", "a", buffering=1)
ready()
number = flips = 0
while True:
    number += 1
    steps.write(f"step {number}\\n")
    time.sleep(0.01)
    if not flips and os.path.exists("go"):
        flips = 1
        flipping("d", "e")
"""


class Listening:
    """The agent's witnesses, of one trainer."""

    def __init__(self, attacker: Attacker) -> None:
        self._sources = ProgressSources(TOOLS, SETTINGS)
        self._trainers = {"job": {attacker.member.process.key: attacker.member}}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        getattr(self._sources, "close", lambda: None)()

    def kinds(self) -> set[SignalKind]:
        """What tells of the trainer now."""
        (heard,) = self._sources.read(self._trainers).values()
        return {witness.kind for witness in heard}

    def until(self, kinds: set[SignalKind]) -> None:
        """Looks until all of these tell of it."""
        targets.until(lambda: kinds <= self.kinds())

    def several(self) -> set[SignalKind]:
        found: set[SignalKind] = set()
        for _ in range(LOOKS):
            found |= self.kinds()
            time.sleep(PAUSE_S)
        return found


@pytest.fixture
def log(vault: Path) -> Iterator[Path]:
    """A log of root's, of steps."""
    path = vault / "log"
    path.write_text("".join(f"step {number}\n" for number in range(100)))
    path.chmod(0o600)
    yield path


@contextlib.contextmanager
def untouched(path: Path) -> Iterator[None]:
    watched = Watched(path)
    try:
        yield
        assert not watched.touched(), f"{path} was opened"
    finally:
        watched.close()


@pytest.mark.parametrize("variable", [LOG, HEARTBEAT])
@pytest.mark.parametrize("through", ["", "/proc/self/root", "/proc/{pid}/root", "/../../.."])
def test_a_path_into_a_folder_of_root_s(variable: str, through: str, home: Path, log: Path) -> None:
    rights = settled("user", home, {"victims": ""})
    said = {variable: through.format(pid=os.getpid()) + os.fspath(log)}
    with attacking(IDLE, rights, **said) as attacker, untouched(log), Listening(attacker) as listening:
        assert not listening.several()


@pytest.mark.parametrize("variable", [LOG, HEARTBEAT])
@pytest.mark.parametrize("kind", KINDS)
def test_a_link_to_a_file_of_root_s(variable: str, kind: str, home: Path, log: Path) -> None:
    rights = settled(kind, home, {"victims": os.fspath(log.parent)})
    said = {variable: f"{rights.given['home']}/e/log"}
    with attacking(IDLE, rights, **said) as attacker, untouched(log), Listening(attacker) as listening:
        assert not listening.several()


@pytest.mark.parametrize("variable", [LOG, HEARTBEAT])
@pytest.mark.parametrize("wholly", [False, True])
@pytest.mark.parametrize("found", ["before", "afterwards"])
def test_a_trainer_that_became_a_setuid_program(
    variable: str, wholly: bool, found: str, home: Path, log: Path, tmp_path: Path
) -> None:
    program = setuid(home, tmp_path, wholly=wholly)
    rights = settled("user", home, {"victims": os.fspath(log.parent), "program": os.fspath(program)})
    with attacking(BECOME, rights, **{variable: f"{home}/e/log"}) as attacker, untouched(log):
        become_setuid(attacker, wholly=wholly)
        if found == "afterwards":
            attacker.member = by_pid(attacker.process.pid)
        with Listening(attacker) as listening:
            assert not listening.several()


@pytest.mark.parametrize("variable", [LOG, HEARTBEAT])
@pytest.mark.parametrize("what", ["pipe", "device"])
def test_what_is_no_file_is_neither_opened_nor_waited_for(variable: str, what: str, home: Path) -> None:
    place = home / "log"
    if what == "pipe":
        os.mkfifo(place, 0o666)
        place.chmod(0o666)
    else:
        os.mknod(place, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero
    rights = settled("user", home, {"victims": ""})
    with attacking(IDLE, rights, **{variable: os.fspath(place)}) as attacker, untouched(place):
        began = time.monotonic()
        with Listening(attacker) as listening:
            assert not listening.several()
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_files_are_watched(kind: str, home: Path, log: Path) -> None:
    """What the other tests rest upon: the way is open to those who take it honestly."""
    with working(kind, home, log) as attacker, Listening(attacker) as listening:
        listening.until({SignalKind.LINES, SignalKind.HEARTBEAT})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_and_a_link_change_places_a_thousand_times(kind: str, home: Path, log: Path) -> None:
    with working(kind, home, log) as attacker, untouched(log):
        with Listening(attacker) as listening:
            listening.until({SignalKind.LINES})
        (Path(f"/proc/{attacker.process.pid}/root{attacker.home}") / "go").touch()
        for _ in range(MANY // LOOKS_EACH):
            with Listening(attacker) as listening:
                for _ in range(LOOKS_EACH):
                    listening.kinds()
                    time.sleep(PAUSE_S / 10)


@contextlib.contextmanager
def working(kind: str, home: Path, log: Path) -> Iterator[Attacker]:
    rights = settled(kind, home, {"victims": os.fspath(log.parent)})
    own = f"{rights.given['home']}/d/log"
    with attacking(WORK, rights, **{LOG: own, HEARTBEAT: own}) as attacker:
        yield attacker
