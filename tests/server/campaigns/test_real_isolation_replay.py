"""By real programs: nobody failed alone, a replay follows by itself, the server is killed, and who fails in a job stays out."""

import asyncio
import json
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog_models.errors import ServerUnreachable
from hangdog_models.incident import Incident
from hangdog_models.verdict import Eviction, Kind
from hangdog_proto.client.campaigns import CampaignClient
from hangdog_server.auth import tokens
from hangdog_server.auth.tokens import Role
from hangdog_server.campaigns.campaign_request import CampaignPlanRequest
from hangdog_server.store import campaigns
from hangdog_server.store.campaigns import CampaignState
from hangdog_server.store.store import Store
from support.fakes import ladder
from support.real.campaign_programs import agents, connected, server, until
from support.servers.cast_acting import NOTHING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * ladder.PATIENCE_S)]

INCIDENT = "0a"
#: The campaign of the other levels.
FIRST = "c0ffee00c0ff"
NAMES = ("m0", "m1", "m2", "m3")
ACTING = """
mode = "auto"
actors = ["exclude-file"]
[exclude-file]
path = "{}"
[caps]
share = 1.0
breaker_share = 1.0
[policy]
test = "auto"
release = "auto"
replay = "auto"
[replay.jobs]
"llama" = ""
"""


async def taken_out(where: Path) -> None:
    """An incident whose verdict takes out all of them, and a campaign of the other levels that convicted nobody: it takes minutes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    now, store = time.time(), Store(where)  # noqa: TID251 - the server that is run has the true clock
    asked = {
        "asked": dict.fromkeys(NAMES),
        "absent": {},
        "job_toml": "",
        "bodies": {name: [boot, ""] for name in NAMES},
    }
    await store.begin(Incident(INCIDENT, "llama", now), asked)
    await store.judged(INCIDENT, replace(NOTHING, kind=Kind.GROUP, confidence=0.97, evict=Eviction(NAMES, 0.97)), now)
    wanted = CampaignPlanRequest((1, 2, 3, 4), 600.0, dict.fromkeys(NAMES, 0.2), 0.2, 0.05, 0.05, {}).to_json()
    await store.do(campaigns.begin, campaigns.Campaign(FIRST, now, "hangdog", "", INCIDENT, wanted))
    passed = [{"machine": name, "launches": 1} for name in NAMES]
    launch = {"launch": 0, "round": 1, "test": "between machines", "machines": list(NAMES), "result": "pass"}
    said = {
        "campaign": FIRST,
        "verdict": "not convicted",
        "not_convicted": passed,
        "untested": [],
        "launches": [launch],
    }
    await store.do(campaigns.end, FIRST, CampaignState.DONE, now, "", json.dumps(said), ())
    store.close()


def hangdog(folder: Path, *words: str) -> str:
    """What a command says to a person who comes in by the server's socket."""
    command = [sys.executable, "-m", "hangdog", *words, "--server", f"unix:{folder / 'server.sock'}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_a_replay_follows_by_itself_though_the_server_is_killed_in_the_middle_and_only_the_guilty_stays_out(
    tmp_path: Path,
) -> None:
    port, excluded, acting = free_port(), tmp_path / "excluded", tmp_path / "acting.toml"
    acting.write_text(ACTING.format(excluded))
    tokens.new(tmp_path / "tokens.json", "alice", Role.ACT, time.time())  # noqa: TID251 - as above
    asyncio.run(taken_out(tmp_path / "s.db"))

    def held() -> list[tuple[str, str]]:
        with suppress(ServerUnreachable), CampaignClient(f"unix:{tmp_path / 'server.sock'}") as client:
            return sorted((one.state, ",".join(one.convicted)) for one in client.campaigns())
        return []  # with so much else to do it may be slow to answer

    def acts() -> dict[str, str]:
        with suppress(ServerUnreachable), CampaignClient(f"unix:{tmp_path / 'server.sock'}") as client:
            return {line.machine: line.state for line in client.actions(INCIDENT).lines}
        return {}

    with ExitStack() as stack:
        first = stack.enter_context(server(tmp_path, port, "--acting", str(acting)))
        until(lambda: (tmp_path / "server.log").read_bytes().count(b"listening on") == 1)
        stack.enter_context(agents(tmp_path, port, NAMES, "gradient", "group_training"))
        until(lambda: held() == [("done", ""), ("running", "")], 1.0)
        first.kill()
        with server(tmp_path, port, "--acting", str(acting)):
            until(lambda: connected(tmp_path) == {*NAMES})
            until(lambda: acts() == {"m0": "released", "m1": "released", "m2": "released", "m3": "done"}, 1.0)
            assert held() == [("done", ""), ("done", "m3")], "none was begun twice"
            told = hangdog(tmp_path, "actions", INCIDENT)
            assert "convicted it" in told and "found nothing" in told, told
            ledger = {name: json.loads(hangdog(tmp_path, "ledger", name, "--format", "json")) for name in ("m0", "m3")}
    assert {*excluded.read_text().split()} & {*NAMES} == {"m3"}
    for name, mention in (("m0", "cleared"), ("m3", "convicted")):
        newest = ledger[name]["entries"][0]
        assert (newest["mention"], newest["verdict"]) == (mention, "diagnosis"), ledger[name]
