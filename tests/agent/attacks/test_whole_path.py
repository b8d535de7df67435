"""Nobody orders anything: a trainer feigns a hang, so that the server has it captured, and the agent opens what it is led to."""

import os
import shutil
import uuid
from pathlib import Path

import pytest

from attacking.stage import Watched, attacking, needs_root, settled
from attacking.whole import PATIENCE_S, UNIT, agent, asked, server, until
from support.fakes.dumper import pickled

pytestmark = [needs_root, pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(300)]

#: Works for a while, in turns of computing and waiting, then waits for ever; answers a poke by having something else where its dump should be.
FEIGN = """
os.chdir(given["home"])
door = opened("pipe-0.pipe")
os.mkdir("d")
os.symlink(given["victims"], "e")
def answer():
    wait_for(door)
    os.rename("d", "d-before")
    os.rename("e", "d")
threading.Thread(target=answer, daemon=True).start()
ready()
until = time.monotonic() + 4.0
while time.monotonic() < until:
    busy = time.monotonic() + 0.05
    while time.monotonic() < busy:
        sum(range(1000))
    time.sleep(0.01)
while True:
    time.sleep(3600)
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv: apt-get install util-linux")
def test_a_feigned_hang_gets_nothing_of_root_s(home: Path, vault: Path, tmp_path: Path) -> None:
    secret = vault / "dump-0"
    secret.write_bytes(pickled(987654321, 123456789))
    secret.chmod(0o600)
    mark = f"HANGDOG_TEST_ATTACK={uuid.uuid4().hex}"
    rights = settled("user", home, {"victims": os.fspath(vault)})
    said = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{home}/pipe-",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{home}/d/dump-",
        mark.partition("=")[0]: mark.partition("=")[2],
    }
    with (
        server(tmp_path) as address,
        agent(address, tmp_path, "--match-env", mark, within=UNIT),
        attacking(FEIGN, rights, **said) as attacker,
    ):
        watched = Watched(secret)
        attacker.was_poked(PATIENCE_S)
        until(lambda: any(one["verdict"] for one in asked("incidents", address)))
        assert not watched.touched(), "root opened a file of its own for the trainer"
        watched.close()
