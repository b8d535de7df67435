"""`hangdog certs`, `token`, `audit` and `health`, and a server and an agent in processes of their own that use them."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from hangdog.main import main
from hangdog_proto.client.channel_options import open_aio_channel
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress, is_loopback
from hangdog_server.auth import audit_log, certificates
from hangdog_server.auth.audit_log import AuditEntry, AuditLog
from hangdog_server.protocol.rate_limits import EACH, SELDOM_S, LogThrottle, RateBudget
from support.servers.cast import PATIENT, Stage, stage
from support.servers.guarded import made, now

DEED = AuditEntry("snapshot", "alice", "act", "token", "ipv4:10.0.0.5:1", "llama", "page", "0123", "asked")


def run(*arguments: str | Path, status: int = 0, **environ: str) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], env=environ)
    assert result.exit_code == status, result.output
    return result


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


def test_certificates_are_made_shown_and_never_overwritten(tmp_path: Path) -> None:
    home = tmp_path / "ca"
    run("certs", "init", home, "--name", "head", "--name", "10.0.0.5")
    run("certs", "machine", "--ca", home, "gpu-a", "gpu/../b")
    run("certs", "client", "--ca", home, "alice", "--into", tmp_path / "people")
    assert modes(home) == {
        "ca.key": 0o600, "ca.pem": 0o644,
        "server/ca.pem": 0o644, "server/cert.pem": 0o644, "server/key.pem": 0o600,
        "machines/gpu-a/ca.pem": 0o644, "machines/gpu-a/cert.pem": 0o644, "machines/gpu-a/key.pem": 0o600,
        "machines/gpu%2F..%2Fb/ca.pem": 0o644, "machines/gpu%2F..%2Fb/cert.pem": 0o644,
        "machines/gpu%2F..%2Fb/key.pem": 0o600,
    }  # fmt: skip
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    for again in (("init", home), ("machine", "--ca", home, "gpu-a"), ("server", "--ca", home, "--name", "head")):
        refused = run("certs", *again, status=64)
        assert "[already-exists]\n" in refused.stderr and "--into" in refused.stderr
    assert before == {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    shown = json.loads(
        run("certs", "show", home, home / "server", tmp_path / "people" / "alice", "--format", "json").stdout
    )
    assert [(it["owner"], it["names"]) for it in shown["certificates"]] == [
        ("authority", []),
        ("server head", ["head", "10.0.0.5", "localhost", "127.0.0.1", "::1"]),
        ("client alice", []),
    ]
    assert "ends in 90 d" in run("certs", "show", home / "machines" / "gpu-a").stdout
    old = certificates.machine(home, "old", now() - 100 * 86400, tmp_path)
    assert "ended 10 d ago" in run("certs", "show", old).stdout
    soon = certificates.machine(home, "soon", now() - 80 * 86400, tmp_path)
    assert "(renew it)" in run("certs", "show", soon).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        (["machine", "--ca", "nowhere", "a"], "unreadable-file", "nowhere/ca.pem"),
        (["machine", "--ca", "ca", " "], "bad-name", "' '"),
        (["init", "other", "--name", "höst"], "wrong-address", "'höst'"),
        (["show", "ca/ca.key"], "unusable-certificate", "ca/ca.key"),
        (["init", "/proc/x"], "unwritable-file", "/proc/x"),
    ],
)
def test_certificates_that_cannot_be_made_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: str, value: str
) -> None:
    made(tmp_path / "ca")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    (line, *_) = run("certs", *arguments, status=64).stderr.splitlines()
    assert line.endswith(f" [{code}]") and value in line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_token_is_printed_once_and_listed_without_itself(tmp_path: Path) -> None:
    file = ("--tokens", tmp_path / "tokens.json")
    token = run("token", "new", "--name", "alice", "--role", "trigger", *file).stdout.strip()
    assert re.fullmatch(r"hangdog_[\w-]{43}", token)
    run("token", "new", "--name", "alice", "--role", "view", *file, status=64)
    listed = run("token", "list", *file).stdout
    assert listed.startswith("alice: trigger, ") and "90 d\n" in listed and token not in listed
    assert listed.count("\n") == 1
    assert json.loads(run("token", "list", *file, "--format", "json").stdout)["tokens"][0]["role"] == "trigger"
    run("token", "revoke", "alice", *file)
    assert "no tokens in" in run("token", "list", *file).stdout
    made, revoked = run("audit", "--file", tmp_path / "audit.jsonl").stdout.splitlines()
    assert "token new: alice, trigger, 90 days" in made and "token revoke: alice" in revoked
    assert made.endswith(" -> done") and revoked.endswith(" -> done")


def test_the_record_is_appended_set_aside_and_read_whatever_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for number in range(8):
        audit_log.append(path, audit_log.line(replace(DEED, who=str(number), why="\x1b[2J\n"), 0.0), 400)
    kept = [entry["who"] for entry in audit_log.read(path)]
    assert kept == [str(number) for number in range(8)][-len(kept) :] and 2 <= len(kept) < 8
    assert audit_log.before(path).exists() and path.stat().st_size <= 400
    with path.open("ab") as file:
        file.write(b'{"torn": ')
    audit_log.append(path, audit_log.line(DEED, 0.0))
    with path.open("ab") as file:
        file.write(b"[1]\n\xff\xfe\n")
    shown = run("audit", "--file", path).stdout
    assert "\x1b" not in shown and " alice (act, token, ipv4:10.0.0.5:1) snapshot llama " in shown
    assert " 0123: page -> asked" in shown
    assert shown.splitlines()[-1].startswith("1970-01-01T00:00:00")
    assert run("audit", "--file", path, "--who", "alice").stdout.count("\n") == 1
    assert "nothing is recorded" in run("audit", "--file", tmp_path / "none").stdout
    assert len(json.loads(run("audit", "--file", path, "--limit", "1", "--format", "json").stdout)["entries"]) == 1


async def test_a_record_that_cannot_be_written_is_told_with_the_deed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    assert not await AuditLog(tmp_path / "file" / "audit.jsonl", lambda: 0.0).note(DEED)
    assert "cannot write" in caplog.text and "audit log" in caplog.text and '"who": "alice"' in caplog.text
    assert await AuditLog(None, lambda: 0.0).note(DEED)


def test_a_budget_refills_and_is_not_overdrawn_without_end() -> None:
    budget = RateBudget(10, 1)
    assert [budget.take(5, 0.0), budget.take(5, 0.0), budget.take(1, 0.0)] == [True, True, False]
    assert not budget.take(1, 0.5) and budget.take(1, 5.0)
    budget.take(1e9, 5.0)
    assert not budget.take(1, 14.0) and budget.take(1, 30.0)
    assert not budget.full(30.0) and budget.full(60.0)


def test_a_complaint_is_told_once_in_a_while_and_nobody_causes_many() -> None:
    seldom = LogThrottle()
    assert [seldom.tell("a", "x", at) for at in (0.0, 1.0, SELDOM_S + 1)] == [True, False, True]
    assert sum(seldom.tell("b", str(number), 0.0) for number in range(1000)) == EACH


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:7411", True),
        ("127.9.9.9:0", True),
        ("localhost:7411", True),
        ("[::1]:7411", True),
        ("0.0.0.0:7411", False),
        ("[::]:7411", False),
        ("10.0.0.5:7411", False),
        ("127.0.0.1.example.org:7411", False),
        ("head-node:7411", False),
        (":7411", False),
        ("7411", False),
    ],
)
def test_what_only_this_machine_reaches(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


@pytest.mark.parametrize("command", [["machines"], ["snapshot"], ["incidents"], ["show", "x"], ["health"]])
def test_no_token_crosses_a_network_in_plain_text(command: list[str]) -> None:
    refused = run(*command, "--server", "192.0.2.1:7411", status=64, HANGDOG_TOKEN="hangdog_secret")
    assert "[unencrypted-connection]\n" in refused.stderr and "--insecure" in refused.stderr
    assert "hangdog_secret" not in repr(ServerAddress("x", token="hangdog_secret"))


def test_a_token_may_lie_in_a_file(tmp_path: Path) -> None:
    missing = run("machines", "--token-file", tmp_path / "none", "--server", "127.0.0.1:1", status=64)
    assert "[unreadable-file]\n" in missing.stderr and str(tmp_path / "none") in missing.stderr
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    empty = run("machines", "--token-file", tmp_path / "token", status=64)
    assert "[bad-token]\n" in empty.stderr and str(tmp_path / "token") in empty.stderr
    for wrong in ("hangdog_a\nb", "tök", "two words"):
        told = run("machines", status=64, HANGDOG_TOKEN=wrong)
        assert "[bad-token]\n" in told.stderr and "HANGDOG_TOKEN " in told.stderr and wrong not in told.stderr
    named = run("machines", "--server", "127.0.0.1:1", status=64, HANGDOG_TOKEN_FILE=str(tmp_path / "none"))
    assert "[unreadable-file]\n" in named.stderr and str(tmp_path / "none") in named.stderr


async def test_health_is_told_until_the_server_is_being_stopped(tmp_path: Path) -> None:
    async with AsyncExitStack() as cast_:
        on = await cast_.enter_async_context(stage(tmp_path / "s.db", settings=PATIENT))
        assert (await asyncio.to_thread(run, "health", "--server", on.address)).stdout == "serving\n"
        assert await asyncio.to_thread(_serving, on, "hangdog.v1.Agents")
        assert await asyncio.to_thread(_serving, on, "hangdog.v1.Incidents")
        async with open_aio_channel(ServerAddress(on.address), ()) as channel:
            watching = cast(Any, channel.unary_stream)("/grpc.health.v1.Health/Watch")(b"")
            assert await watching.read() == b"\x08\x01"
            ending = asyncio.create_task(cast_.aclose())
            assert await watching.read() == b"\x08\x02", "it says so before it is gone"
            await ending
    gone = await asyncio.to_thread(run, "health", "--server", on.address, status=69)
    assert "[server-unreachable]\n" in gone.stderr


def _serving(on: Stage, service: str) -> bool:
    with Client(on.address) as client:
        return client.serving(service)


@asynccontextmanager
async def process(*command: str | Path, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program of ours; it is told to end, and has ended."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOG_")}
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *map(str, command)),
        env=clean | environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGKILL)
        await started.communicate()


@pytest.mark.slow
@pytest.mark.parallel
async def test_a_cluster_from_nothing_as_the_page_tells_it(tmp_path: Path) -> None:
    """The real commands: certificates, a server that listens to the network, an agent, a person; and who is refused."""
    home, tokens = tmp_path / "ca", tmp_path / "tokens.json"
    run("certs", "init", home, "--name", "localhost")
    run("certs", "machine", "--ca", home, "gpu-a", "gpu-b")
    run("certs", "client", "--ca", home, "alice")
    token = run("token", "new", "--name", "alice", "--role", "view", "--tokens", tokens).stdout.strip()
    serve = ("hangdog", "server", "--listen", "0.0.0.0:0", "--tls", home / "server", "--store", tmp_path / "s.db")
    async with process(*serve) as server:
        assert server.stdout is not None
        port = (await server.stdout.readline()).decode().strip().rpartition(":")[2]
        way = ("--server", f"localhost:{port}", "--tls", home / "clients" / "alice")
        agent = ("hangdog_agent.main", "--server", f"localhost:{port}", "--match-env", "HANGDOG_JOB=of-nobody")
        async with (
            process(*agent, "--machine", "gpu-a", HANGDOG_TLS=str(home / "machines" / "gpu-a")),
            process(*agent, "--machine", "gpu-c", "--tls", home / "machines" / "gpu-b") as liar,
        ):
            async with asyncio.timeout(30):
                while True:
                    shown = await asyncio.to_thread(
                        run, "machines", *way, "--format", "json", HANGDOG_TOKEN=token, HANGDOG_TLS=""
                    )
                    if [it["machine"] for it in json.loads(shown.stdout)["machines"]] == ["gpu-a"]:
                        break
                assert liar.stderr is not None
                while b"PERMISSION_DENIED" not in (line := await liar.stderr.readline()):
                    pass
            assert b"the certificate of machine gpu-b claims to be machine gpu-c" in line
        refused = await asyncio.to_thread(run, "snapshot", *way, status=77, HANGDOG_TOKEN=token)
        assert "alice may view" in refused.stderr and "takes trigger [role-too-low]\n" in refused.stderr
        unknown = await asyncio.to_thread(run, "machines", *way, status=77)
        assert "asks for a token" in unknown.stderr
        assert (await asyncio.to_thread(run, "health", *way)).stdout == "serving\n"
        await asyncio.to_thread(run, "health", "--server", f"localhost:{port}", status=69)
        server.send_signal(signal.SIGTERM)
        _, log = await server.communicate()
        assert server.returncode == 0 and b"Traceback" not in log
        assert b"own certificate ends on" in log


async def test_an_agent_speaks_no_plain_text_to_another_machine(tmp_path: Path) -> None:
    for more, words in (
        ([], b"without TLS others on the network could read"),
        (["--tls", str(tmp_path)], b"cannot read"),
    ):
        async with process("hangdog_agent.main", "--server", "192.0.2.1:7411", *more) as agent:
            _, said = await agent.communicate()
            assert agent.returncode == 64 and words in said
