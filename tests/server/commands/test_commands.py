"""The commands that meet the server, against a server in a process of its own and agents played by the test."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hangdog.commands.oncall import snapshot
from hangdog.main import main
from hangdog.retry import RetryPolicy
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.stack import ProcessTrace
from hangdog_proto.codec import findings
from hangdog_proto.generated import hangdog_pb2 as pb
from support.servers.cast import Agent, Stage, stage, trainer

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

NOBODY = "127.0.0.1:1"


@dataclass
class Server:
    """`hangdog server` as a process of its own."""

    process: asyncio.subprocess.Process
    address: str

    def agent(self, machine: str) -> Agent:
        return Agent(self.address, machine)

    async def end(self, number: int) -> tuple[int, str]:
        """Sends it a signal; its exit status and its log."""
        self.process.send_signal(number)
        _, log = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, log.decode()


@asynccontextmanager
async def server(store: Path, *options: str) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hangdog", "server", "--listen", "127.0.0.1:0", "--store", str(store), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    assert line.startswith("listening on 127.0.0.1:"), line
    try:
        yield Server(process, line.removeprefix("listening on ").strip())
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def hangdog(on: Server | Stage | str, *arguments: str) -> Result:
    """Runs a command against a server."""
    address = on if isinstance(on, str) else on.address
    return await asyncio.to_thread(CliRunner().invoke, main, [*arguments, "--server", address])


async def known(on: Server, *machines: str) -> None:
    """Returns once these machines have announced a job."""
    async with asyncio.timeout(50):
        while True:
            document = json.loads((await hangdog(on, "machines", "--format", "json")).stdout)
            if set(machines) <= {it["machine"] for it in document["machines"] if it["jobs"]}:
                return


async def test_from_the_first_agent_to_the_list_of_incidents(tmp_path: Path) -> None:
    async with server(tmp_path / "s.db") as on, on.agent("gpu-a") as a, on.agent("gpu-b") as b:
        await a.hello(llama=[0, 1])
        await b.hello(llama=[2, 3])
        await known(on, "gpu-a", "gpu-b")
        asking = asyncio.create_task(hangdog(on, "snapshot", "--rounds", "1", "--why", "page 4711", "--format", "json"))
        await a.answer(await a.order(), trainer(0), trainer(1))
        await b.answer(await b.order(), trainer(2), trainer(3))
        asked = await asking
        verdict = json.loads(asked.stdout)
        assert verdict["schema"] == "hangdog.verdict/1" and verdict["coverage"]["captured"] == 4
        assert {"asked 2 machines", "2 of 2 machines answered", "judging 4 ranks"} <= set(asked.stderr.splitlines())
        assert asked.exit_code == {"none": 0, "undetermined": 2}.get(verdict["verdict"], 1)

        listed = json.loads((await hangdog(on, "incidents", "--format", "json")).stdout)
        (line,) = listed["incidents"]
        assert (line["job"], line["state"], line["why"]) == ("llama", "judged", "page 4711")
        table = (await hangdog(on, "incidents")).stdout
        assert line["id"] in table and "llama" in table and "page 4711" in table
        assert (await hangdog(on, "incidents", "--job", "qwen")).stdout.endswith(" job qwen\n")

        shown = await hangdog(on, "show", line["id"][:4], "--format", "json")
        assert (json.loads(shown.stdout), shown.exit_code) == (verdict, asked.exit_code)
        text = (await hangdog(on, "show", line["id"])).stdout
        assert text.startswith(f"incident {line['id']} of job llama, ") and "4 of 4 ranks captured" in text
        missing = await hangdog(on, "show", "zz")
        assert missing.exit_code == 64 and "'zz' [no-such-incident]\n" in missing.stderr

        machines = (await hangdog(on, "machines")).stdout
        assert "gpu-a" in machines and "llama (ranks 2-3)" in machines
        assert [line.split()[-2] for line in machines.splitlines()[1:]] == ["-", "-"], "nothing was found"
        codes = ("hot", "Xid 79", "hot", "Xid 94", "link down")
        bearings = (Impact.SLOWS, Impact.CONVICTS, Impact.SLOWS, Impact.SUSPECTS, Impact.SUSPECTS)
        sick = [Finding("NVML", *said, what="GPU 1\x1b[2J") for said in zip(codes, bearings, strict=True)]
        await b.say(health=pb.Health(findings=findings.pack(sick)))
        async with asyncio.timeout(30):
            while "Xid 79, Xid 94, link down and 1 more" not in (machines := (await hangdog(on, "machines")).stdout):
                pass
        assert "\x1b" not in machines
        sick_one, sound = json.loads((await hangdog(on, "machines", "--format", "json")).stdout)["machines"]
        assert [(each["code"], each["impact"], each["device"]) for each in sick_one["findings"]][:2] == [
            ("hot", "slows", None),
            ("Xid 79", "convicts", None),
        ]
        assert (sick_one["machine"], sound["machine"]) == ("gpu-b", "gpu-a"), "the one to see to comes first"
        assert sick_one["stopped"] is False
        status, log = await on.end(signal.SIGTERM)
        assert status == 0 and "stopping" in log


async def test_a_server_that_is_killed_leaves_its_incidents_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        snapshot, "RetryPolicy", partial(RetryPolicy, timeout_s=1.0, interval_s=0.2)
    )  # else it waits for minutes
    async with server(tmp_path / "s.db") as on, on.agent("a") as agent:
        await agent.hello(llama=[0])
        await known(on, "a")
        judging = asyncio.create_task(hangdog(on, "snapshot", "--rounds", "1"))
        await agent.answer(await agent.order(), trainer(0))
        await judging
        asking = asyncio.create_task(hangdog(on, "snapshot", "--rounds", "1"))
        order = await agent.order()
        await on.end(signal.SIGKILL)
        asked = await asking
        assert asked.exit_code == 69 and on.address in asked.stderr and "[server-unreachable]\n" in asked.stderr
    async with server(tmp_path / "s.db") as on, on.agent("a") as agent:
        listed = json.loads((await hangdog(on, "incidents", "--format", "json")).stdout)["incidents"]
        assert [line["state"] for line in listed] == ["capturing", "judged"]
        document = json.loads((await hangdog(on, "show", order.order, "--format", "json")).stdout)
        assert (document["schema"], document["verdict"]) == ("hangdog.incident/1", None)
        await agent.hello(llama=[0])
        again = await agent.order()
        assert again.order == order.order
        await agent.answer(again, trainer(0))
        async with asyncio.timeout(50):
            while "undetermined" not in (await hangdog(on, "show", order.order)).stdout:
                await asyncio.sleep(0.05)
        status, log = await on.end(signal.SIGINT)
        assert status == 0 and "Traceback" not in log


async def test_a_job_that_is_described_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[topology]\ntp = 2\npp = 2\n")
    (tmp_path / "bad.toml").write_text("[topology]\ntp = 0\n")
    (tmp_path / "photo.toml").write_bytes(b"\x89PNG")
    async with stage(tmp_path / "s.db") as on, on.agent("a") as agent:
        await agent.hello(llama=[0, 1, 2])
        await on.knows("a")
        asking = asyncio.create_task(hangdog(on, "snapshot", "--topology", str(tmp_path / "job.toml")))
        await agent.answer(await agent.order(), trainer(0), trainer(1), ProcessTrace(Rank(2)))
        asked = await asking
        assert "4 ranks" in asked.stdout and asked.exit_code == 2
        for name, status in (("bad.toml", 64), ("photo.toml", 65), ("none.toml", 64)):
            refused = await hangdog(on, "snapshot", "--topology", str(tmp_path / name))
            assert refused.exit_code == status and name in refused.stderr


async def test_several_jobs_are_listed(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, on.agent("a") as agent:
        await agent.hello(llama=[0], qwen=[0])
        await on.knows("a")
        refused = await hangdog(on, "snapshot")
        what, hint = refused.stderr.splitlines()
        assert refused.exit_code == 64 and what.endswith(": llama, qwen [ambiguous-job]") and "--job" in hint


@pytest.mark.parametrize("command", [["snapshot"], ["incidents"], ["show", "x"], ["machines"]])
async def test_no_server_is_69(command: list[str]) -> None:
    result = await hangdog(NOBODY, *command)
    assert result.exit_code == 69 and NOBODY in result.stderr and "[server-unreachable]\n" in result.stderr


async def test_a_server_that_has_nothing_to_tell(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on:
        assert (await hangdog(on, "incidents")).stdout == "no incidents\n"
        said = (await hangdog(on, "machines")).stdout
        assert said.startswith("no machine ") and "hangdog-agent" in said
        refused = await hangdog(on, "snapshot")
        assert refused.exit_code == 64 and "[no-such-job]\n" in refused.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--store", "/proc/hangdog/s.db"], "cannot open the store /proc/hangdog/s.db: No such file or directory"),
        (["--listen", "7411"], "'7411' is no address to listen on"),
        (["--listen", "192.0.2.1:7411", "--insecure"], "cannot listen on 192.0.2.1:7411"),
        (["--listen", "0.0.0.0:0"], "without TLS, anyone who reaches 0.0.0.0:0 could read verdicts"),
        (["--listen", "[::]:0"], "without TLS, anyone who reaches [::]:0"),
        (["--listen", "127.0.0.1.example.org:0"], "without TLS"),
        (["--people", "127.0.0.1:0"], "--people needs --tls"),
        (["--tls", "/nowhere"], "cannot read /nowhere/ca.pem"),
        (["--acting", "/nowhere"], "cannot read /nowhere"),
        (["--patience", "nan"], "nan is no number"),
        (["--keep-size", "inf"], "inf is no number"),
    ],
)
def test_a_server_that_cannot_start_says_why(tmp_path: Path, options: list[str], words: str) -> None:
    default = ["--store", str(tmp_path / "s.db"), "--listen", "127.0.0.1:0"]
    result = CliRunner().invoke(main, ["server", *default, *options])
    assert result.exit_code == 64 and words in result.stderr
    assert words.startswith("cannot listen") or not (tmp_path / "s.db").exists(), "refused before anything is made"


async def test_two_servers_do_not_share_a_port(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on:
        arguments = ["server", "--listen", on.address, "--store", str(tmp_path / "other.db")]
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        assert result.exit_code == 64 and f"cannot listen on {on.address}" in result.stderr


async def test_without_the_extra_the_command_names_it(tmp_path: Path) -> None:
    """The bare install has no SQLAlchemy: a finder that finds none plays it."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['sqlalchemy'] = None\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hangdog", "server"),
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, log = await process.communicate()
    assert process.returncode == 64 and "pip install --require-hashes -r requirements/server.txt" in log.decode()


async def test_what_agents_call_themselves_cannot_write_to_a_terminal(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, on.agent("a[bold]") as agent:
        await agent.hello(**{"[red]llama": [0]})
        await on.knows("a[bold]")
        shown = (await hangdog(on, "machines")).stdout
        assert "a[bold]" in shown and "[red]llama (rank 0)" in shown
        asking = asyncio.create_task(hangdog(on, "snapshot", "--why", "\x1b[2J"))
        await agent.answer(await agent.order(), trainer(0))
        await asking
        assert "\x1b" not in (await hangdog(on, "incidents")).stdout
