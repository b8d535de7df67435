"""A trainer whose dump is exchanged for what only root, or another user, may read: that never comes back as its record."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from attacking.stage import BRIEF, KINDS, MANY, OTHER, UID, Attacker, attacking, captured, folder, needs_root, settled
from hangdog_proto.codec.collectives import Statement
from support.fakes.dumper import pickled

pytestmark = [needs_root, pytest.mark.parallel]

#: What is to be stolen has the form of a record, so that nothing but who may read it keeps it from being taken for one.
SECRET, OWN = pickled(987654321, 123456789), pickled(7, 6)
#: Long enough for a dump that is there at once, on a busy machine too. Seconds.
PATIENCE = replace(BRIEF, dump_s=0.8)
#: Answers each poke by having something else where its dump should be: no race, for the agent looks there afterwards.
THEFT = """
os.chdir(given["home"])
door = opened("pipe-0.pipe")
os.mkdir("d")
if given["victims"]:
    os.symlink(given["victims"], "e")
ready()
while True:
    wait_for(door)
    os.rename("d", "d-before")
    os.rename("e", "d")
"""
OWN_DUMP = """
os.chdir(given["home"])
door = opened("pipe-0.pipe")
os.mkdir("d")
ready()
while True:
    wait_for(door)
    Path("d/dump-0").write_bytes(bytes.fromhex(given["own"]))
"""
#: Answers each poke with a dump of its own, while its folder is exchanged for a link to the victim's all the time.
RACE = """
os.chdir(given["home"])
door = opened("pipe-0.pipe")
os.mkdir("d")
os.symlink(given["victims"], "e")
ready()
flipping("d", "e")
while True:
    wait_for(door)
    for folder in "de":
        try:
            Path(folder, "dump-0").write_bytes(bytes.fromhex(given["own"]))
        except OSError:
            pass
"""


@contextmanager
def thief(body: str, home: Path, kind: str = "user", dumps: str = "", **given: object) -> Iterator[Attacker]:
    rights = settled(kind, home, {"victims": ""} | given)
    place = rights.given["home"]
    said = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{place}/pipe-",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dumps or f"{place}/d/dump-",
    }
    with attacking(body, rights, **said) as attacker:
        yield attacker


def asked(attacker: Attacker) -> Statement:
    told = captured(attacker, PATIENCE)
    attacker.was_poked()
    return told


def stolen(told: Statement) -> bool:
    return told.data == SECRET


def hidden(folder: Path, uid: int = 0) -> Path:
    """A file that only its owner may read, as its folder."""
    secret = folder / "dump-0"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    for path in (secret, folder):
        os.chown(path, uid, uid)
    return secret


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_dump_is_read(kind: str, home: Path) -> None:
    """What the other tests rest upon: the way is open to those who take it honestly."""
    with thief(OWN_DUMP, home, kind, own=OWN.hex()) as attacker:
        assert asked(attacker).data == OWN


@pytest.mark.parametrize("owner", [0, OTHER])
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_becomes_a_link(kind: str, owner: int, home: Path, vault: Path) -> None:
    hidden(vault, owner)
    with thief(THEFT, home, kind, victims=os.fspath(vault)) as attacker:
        assert not stolen(asked(attacker))


def test_a_dump_that_becomes_a_link(home: Path, vault: Path) -> None:
    hidden(vault)
    prepared(home).joinpath("dump-0").symlink_to(vault / "dump-0")
    with thief(THEFT, home) as attacker:
        assert not stolen(asked(attacker))


def test_a_dump_that_becomes_another_name_of_root_s_file(home: Path, vault: Path) -> None:
    """Where fs.protected_hardlinks is 0 everybody may give a file of root's another name."""
    os.link(hidden(vault), prepared(home) / "dump-0")
    with thief(THEFT, home) as attacker:
        assert not stolen(asked(attacker))


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_a_dump_that_becomes_no_file_is_not_waited_for(what: str, home: Path) -> None:
    place = prepared(home) / "dump-0"
    if what == "pipe":
        os.mkfifo(place, 0o666)
    else:
        os.mknod(place, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero
    with thief(THEFT, home) as attacker:
        told = asked(attacker)
    assert told.missing is not None and not told.data


@pytest.mark.parametrize("through", ["", "/proc/self/root", "/proc/{pid}/root"])
def test_a_dump_that_is_root_s_own_and_changes_by_itself(through: str, home: Path, vault: Path) -> None:
    """No link, no race: its environment simply names a file that root writes to now and then."""
    secret = hidden(vault)
    over = threading.Event()

    def rewritten() -> None:
        while not over.wait(0.25):
            secret.write_bytes(SECRET)

    writer = threading.Thread(target=rewritten)
    writer.start()
    try:
        dumps = through.format(pid=os.getpid()) + f"{vault}/dump-"
        prepared(home)
        with thief(THEFT, home, dumps=dumps) as attacker:
            assert not stolen(asked(attacker))
    finally:
        over.set()
        writer.join()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_and_a_link_change_places_again_and_again(kind: str, vault: Path) -> None:
    hidden(vault)
    own = 0
    with ExitStack() as stack:
        attackers = []
        for _ in range(8):  # nearly all of a try is waiting for the dump
            home = stack.enter_context(folder())
            given = {"victims": os.fspath(vault), "own": OWN.hex()}
            attackers.append(stack.enter_context(thief(RACE, home, kind, **given)))
        pool = stack.enter_context(ThreadPoolExecutor(len(attackers)))
        for told in pool.map(lambda number: captured(attackers[number % 8], PATIENCE), range(MANY)):
            assert not stolen(told)
            own += told.data == OWN
    assert own, "no record was read at all"


def prepared(home: Path) -> Path:
    """The folder that will stand where the dump's does, once it was poked."""
    folder = home / "e"
    folder.mkdir()
    os.chown(folder, UID, UID)
    return folder
