"""The on-call commands against a server: what they say of jobs, machines and incidents, and what each says when it cannot."""

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len
from rich.console import Console

from hangdog.commands.oncall.jobs import as_json, running_jobs, show
from hangdog.commands.oncall.watch import changes
from hangdog.main import main
from hangdog_models.actions.caps import Mode
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.errors import ServerUnreachable
from hangdog_models.findings import Finding, Impact
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.owner import Owner, OwnerKind
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Kind
from hangdog_proto.client.incidents import JobLine, MachineLine
from hangdog_proto.codec import findings
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.auth import certificates, tokens
from support.cases.stories import trace
from support.servers.asking import COMMANDS, DEEDS, NAMELESS, NOBODY
from support.servers.cast import NOON, PATIENT, Agent, Stage, cluster, stage
from support.servers.cast_acting import WIDE
from support.servers.guarded import guarded, made, now
from support.servers.tested import broken, machines, sound

DAY = 86400.0


async def run(on: Stage | str, *arguments: str, status: int = 0) -> Result:
    address = on if isinstance(on, str) else on.address
    result = await asyncio.to_thread(CliRunner().invoke, main, [*arguments, "--server", address])
    assert result.exit_code == status, result.output
    assert "\x1b" not in result.output
    return result


async def told(on: Stage, *arguments: str, status: int = 0) -> Any:
    return json.loads((await run(on, *arguments, "--format", "json", status=status)).stdout)


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    does = ActionsConfig(Mode.APPROVE, WIDE, (), tmp_path / "stop")
    async with stage(tmp_path / "s.db", diagnose, replace(PATIENT, rounds=2, returned_s=0.0), does=does) as on:
        yield on


async def shows(agent: Agent, stories: dict[int, str]) -> None:
    """Answers an order with two looks that are the same."""
    order, traces = (
        await agent.order(),
        [trace(rank, stack, state="" if stack == "disk" else "S") for rank, stack in stories.items()],
    )
    for number in (0, 1):
        capture = pack(traces)
        await agent.say(captured=pb.Captured(order=order.order, round=number, capture=capture, last=number == 1))


async def test_a_hang_from_the_jobs_to_the_stacks(on: Stage, tmp_path: Path) -> None:
    async with cluster(on, a=[0, 1], b=[2, 3], c=[4, 5]) as (a, b, c), on.agent("spare") as spare:
        await spare.hello()
        (job,) = (await told(on, "jobs"))["jobs"]
        assert (job["job"], job["state"], job["machines"], job["ranks"]) == ("llama", "unknown", ["a", "b", "c"], "0-5")
        assert (job["incident"], job["last"]) == (None, None)
        assert "nothing speaks against it now" in (await run(on, "why", "c")).stdout

        asking = asyncio.create_task(on.snapshot("llama", job_toml="[topology]\ndp = 6\n"))
        order = await a.order()
        (job,) = (await told(on, "jobs"))["jobs"]
        assert (job["state"], job["incident"]) == ("examined", {"id": order.order, "state": "capturing"})
        assert "has no verdict yet (capturing)" in (await run(on, "why", "c", status=2)).stdout
        early = await run(on, "tree", order.order, status=64)
        assert "[no-captures-yet]" in early.stderr and f"hangdog watch {order.order}" in early.stderr
        watching = asyncio.create_task(run(on, "watch", order.order[:6], "--every", "0.05", status=1))
        for number in (0, 1):
            capture = pack([trace(rank, "scatter", state="S") for rank in (0, 1)])
            await a.say(captured=pb.Captured(order=order.order, round=number, capture=capture, last=number == 1))
        await asyncio.gather(shows(b, {2: "scatter", 3: "scatter"}), shows(c, {4: "disk", 5: "scatter"}))
        verdict = (await asking)[-1].verdict
        assert verdict is not None and (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("c",))
        watched = await watching
        assert "llama: judged, machine " in watched.stdout and "Evict c." in watched.stdout

        name = order.order
        (job,) = (await told(on, "jobs"))["jobs"]
        assert (job["state"], job["last"]["id"], job["last"]["evict"]) == ("stuck", name, ["c"])
        assert "evict c" in (await run(on, "jobs")).stdout
        async with asyncio.timeout(60):
            while "waiting" not in (await run(on, "actions", name)).stdout:
                await asyncio.sleep(0.02)
        why = await told(on, "why", "c", status=1)
        assert (why["state"], why["incident"], why["do"][0]) == (
            "convicted", name, f"hangdog approve {name}    # take it out of use",
        )  # fmt: skip
        assert (
            why["reasons"] == [one.text for one in verdict.suspects[0].because]
            and why["verdicts"][0]["mention"] == "convicted"
        )
        assert "nothing speaks against it now" in (await run(on, "why", "a")).stdout
        await run(on, "dismiss", name, "--because", "seen by eye")
        assert "dismissed" in (await run(on, "why", "c")).stdout

        assert (await told(on, "ranks", name[:6]))["incident"] == name
        assert "outside of any collective" in (await run(on, "ranks", name, "--rank", "4")).stdout
        assert "read_bytes (pathlib.py" in (await run(on, "stacks", name, "4")).stdout
        await run(on, "bundle", name, "-o", str(tmp_path / "out"))
        for command in (["ranks"], ["ranks", "--rank", "4"], ["stacks", "4"], ["diff", "4", "5"], ["tree"]):
            live = await told(on, command[0], name, *command[1:])
            read = await told(on, command[0], str(tmp_path / "out"), *command[1:])
            assert {**live, "incident": None, "bundle": read["bundle"]} == read, "a bundle shows what the server does"


async def test_a_machine_that_is_sick_lost_or_misspelt(on: Stage) -> None:
    async with on.agent("gpu-a17") as agent:
        await agent.hello(llama=[0])
        await on.knows("gpu-a17")
        refused = await run(on, "why", "gpu-a71", status=64)
        assert (
            "[unknown-machine]" in refused.stderr
            and "gpu-a17?" in refused.stderr
            and "hangdog ledger" in refused.stderr
        )
        sick = Finding("NVML", "Xid 79", Impact.CONVICTS, "GPU\x1b[2J is lost")
        await agent.say(health=pb.Health(findings=findings.pack([sick])))
        await on.until(lambda seen: any(line.findings for line in seen))
        shown = (await run(on, "why", "gpu-a17", status=1)).stdout
        assert shown.startswith("gpu-a17: sick, its own checks speak against it: Xid 79 (convicts)")
        await agent.say(health=pb.Health())
        await on.until(lambda seen: not any(line.findings for line in seen))
    await on.until(lambda seen: not any(line.connected for line in seen))
    assert "gpu-a17: lost, its agent fell silent" in (await run(on, "why", "gpu-a17", status=2)).stdout
    (job,) = (await told(on, "jobs"))["jobs"]
    assert (job["state"], job["lost"]) == ("lost", ["gpu-a17"])


async def test_a_machine_that_tests_convicted_and_the_part_by_its_name(on: Stage) -> None:
    async with machines(on, m0=sound, m1=broken(1)):
        await run(on, "test", "run", "--machines", "m0,m1", "--level", "1", status=1)
        shown = (await run(on, "why", "m1", status=1)).stdout
        assert shown.startswith("m1: convicted, ") and "have it repaired" in shown and "one device: gemm" in shown
        assert (await told(on, "why", "m0"))["tests"]


@pytest.mark.parametrize("what", COMMANDS)
async def test_without_a_server_each_command_says_how_to_name_one(what: str) -> None:
    refused = await run(NOBODY, *COMMANDS[what], status=69)
    assert (
        "[server-unreachable]" in refused.stderr
        and NOBODY in refused.stderr
        and "--server or HANGDOG_SERVER" in refused.stderr
    )


async def test_what_no_server_knows_is_refused_with_where_to_look(on: Stage) -> None:
    wrong = {}
    for what, command in COMMANDS.items():
        if what in NAMELESS:
            assert NAMELESS[what] in (await run(on, *command)).stdout, what
        elif what != "watch":
            refused = await run(on, *command, status=64)
            if not re.search(r"hangdog[ -][a-z]+", refused.stderr.partition("\n")[2]):
                wrong[what] = refused.stderr
    assert not wrong, "each names the command that lists what there is"


async def test_who_shows_no_token_is_told_whom_to_ask(tmp_path: Path) -> None:
    async with guarded(made(tmp_path / "ca")) as on:
        assert on.reach is not None and on.reach.tls is not None
        for command in COMMANDS.values():
            refused = await run(on, *command, "--tls", str(on.reach.tls), status=77)
            assert "hangdog token new" in refused.stderr, command


async def test_who_may_look_only_is_told_which_role_an_act_takes(tmp_path: Path) -> None:
    cluster_ = made(tmp_path / "ca")
    file = tmp_path / "token"
    file.write_text(tokens.new(cluster_.home / "tokens.json", "carol", tokens.Role.VIEW, now()))
    async with guarded(cluster_) as on:
        assert on.reach is not None and on.reach.tls is not None
        shown = ("--tls", str(on.reach.tls), "--token-file", str(file))
        for what in DEEDS:
            refused = await run(on, *COMMANDS[what], *shown, status=77)
            assert "carol" in refused.stderr and "hangdog token new" in refused.stderr, refused.stderr
        assert "no job is known" in (await run(on, "jobs", *shown)).stdout


async def test_a_certificate_that_has_ended_is_told_with_what_to_renew(tmp_path: Path) -> None:
    cluster_ = made(tmp_path / "ca")
    late = certificates.client(cluster_.home, "carol", now() - 3 * DAY, tmp_path / "late", days=1)
    async with guarded(cluster_) as on:
        for command in COMMANDS.values():
            refused = await run(on, *command, "--tls", str(late), status=77)
            assert (
                "2 d ago" in refused.stderr
                and "[expired-certificate]" in refused.stderr
                and "hangdog certs client" in refused.stderr
            ), refused.stderr


async def test_a_server_whose_certificate_is_not_valid_now_is_told_with_the_clock(tmp_path: Path) -> None:
    cluster_ = made(tmp_path / "ca")
    certificates.server(cluster_.home, ["localhost"], now() + 9 * DAY, tmp_path / "tomorrow")
    async with guarded(cluster_, tls=tmp_path / "tomorrow" / "server") as on:
        assert on.reach is not None and on.reach.tls is not None
        for what in ("show", "jobs", "watch one"):
            refused = await run(on, *COMMANDS[what], "--tls", str(on.reach.tls), status=69)
            assert "[server-unreachable]" in refused.stderr and "is the date here right?" in refused.stderr


async def test_an_incident_that_fails_ends_the_watch_without_a_verdict(on: Stage) -> None:
    await on.store.begin(Incident("0a", "llama", NOON), {})
    watching = asyncio.create_task(run(on, "watch", "0a", "--every", "0.05", "--format", "json", status=2))
    await on.store.move("0a", IncidentState.FAILED, NOON + 1, "its disk \x1b[2J is full")
    lines = [json.loads(line) for line in (await watching).stdout.splitlines()]
    assert lines[-1]["state"] == "failed" and {line["schema"] for line in lines} == {"hangdog.incident/1"}


async def test_ctrl_c_ends_a_watch_after_whole_lines(on: Stage) -> None:
    await on.store.begin(Incident("0a", "llama", NOON), {})
    command = ("-m", "hangdog", "watch", "--every", "60s", "--format", "json", "--server", on.address)
    watching = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=PIPE, stderr=PIPE)
    assert watching.stdout is not None
    assert json.loads(await watching.stdout.readline())["id"] == "0a", "told at once, though nobody ends the pipe"
    watching.send_signal(signal.SIGINT)
    assert await watching.communicate() == (b"", b"\nhangdog: interrupted\n"), "the ^C has its own line"
    assert watching.returncode == 130


def line(name: str, state: str, verdict: str = "") -> Incident:
    return Incident(name, "llama", NOON, state=state, kind=verdict, confidence=0.5)


def test_a_watch_tells_each_change_once_and_outlasts_a_server_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    away = ServerUnreachable("no server answers")
    answers: Iterator[tuple[Incident, ...] | ServerUnreachable] = iter([
        (line("2", "capturing"), line("1", "judged", "none")),
        (line("2", "capturing"), line("1", "judged", "none")),
        away,
        away,
        (line("3", "suspected"), line("2", "judged", "machine"), line("1", "judged", "none")),
    ])  # fmt: skip
    waited: list[float] = []

    def ask() -> tuple[Incident, ...]:
        answer = next(answers)
        if isinstance(answer, ServerUnreachable):
            raise answer
        return answer

    news = list(islice(changes(ask, 7.0, wait=waited.append), 3))
    assert [(one.id, one.state) for one in news] == [("2", "capturing"), ("2", "judged"), ("3", "suspected")]
    assert waited == [7.0] * 4
    assert capsys.readouterr().err == "no server answers; asking again\nthe server answers again\n"


HOSTILE = ("\x1b[2J\x07", "\u202egpj", "[bold]", "two\nlines", "y" * 100_000)


async def test_incidents_of_hostile_names_fill_no_terminal(on: Stage) -> None:
    for number, hostile in enumerate(HOSTILE):
        await on.store.begin(Incident(f"{number}a", hostile, NOON, why=hostile), {})
    for command, status in ((["incidents"], 0), (["incidents", "--job", HOSTILE[-1]], 0), (["show", "4a"], 2)):
        shown = (await run(on, *command, status=status)).stdout
        assert 0 < len(shown) < 20_000 and all(one.isprintable() for one in shown.splitlines()), command


@pytest.mark.parametrize("hostile", HOSTILE)
def test_jobs_of_hostile_names_are_listed_harmlessly_in_80_columns(hostile: str) -> None:
    local = JobLine(hostile, (Rank(0), Rank(7)), 64, "", conflict=f"{hostile} claims rank 7")
    on_it = [MachineLine(hostile, "1", True, 1.0, (local,)), MachineLine("b", "1", False, 99.0, (local,))]
    judged = replace(line("1", "judged", "machine"), job=hostile, evict=(hostile,))
    out = StringIO()
    show(running_jobs(on_it, (judged,), {}), Console(file=out, width=80))
    assert len(out.getvalue()) < 20_000 and "2 (1 lost)" in out.getvalue() and "2 of 64" in out.getvalue()
    for shown in out.getvalue().split("\n"):
        assert shown.isprintable() and cell_len(shown) <= 80, shown


def test_a_job_whose_machines_contradict_each_other_is_said_to_be_so() -> None:
    owner = Owner(OwnerKind.SLURM, "77", 1000)
    local = JobLine("llama", (Rank(0),), 64, "", owner, "b claims rank 0, which a announced first")
    (job,) = running_jobs([MachineLine("a", "1", True, 1.0, (local,))], (), {})
    assert (as_json(job)["owner"], as_json(job)["conflict"]) == ("slurm-77", local.conflict)
    out = StringIO()
    show((job,), Console(file=out, width=200))
    said = "llama: machines contradict each other, so nothing is done for it by itself: b claims rank 0, which a announced first"
    assert said in out.getvalue()
