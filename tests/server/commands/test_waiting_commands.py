"""A command that waits outlives its server: killed and started again on the same store, it goes on and ends with the verdict's status."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog.retry import RetryPolicy
from hangdog_models.errors import ServerUnreachable
from hangdog_proto.client.incidents import Client
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_server.store.store import Store
from support.servers.cast import PATIENT, Agent, Stage, trainer
from support.servers.tested import machines, report

HANGDOG = (sys.executable, "-m", "hangdog")


def test_a_server_that_is_away_is_said_once_and_waited_for_so_long(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    patience = RetryPolicy("incident 1", "hangdog watch 1", timeout_s=10.0, monotonic=lambda: now, wait=wait)
    away = ServerUnreachable("no server answers", "start one")
    for _ in range(5):
        patience.lost(away)
    patience.answered()
    for _ in range(5):
        patience.lost(away)
    with pytest.raises(ServerUnreachable) as over:
        patience.lost(away)
    assert "for 10 s" in str(over.value) and over.value.hint.endswith(": hangdog watch 1")
    assert over.value.exit_code == 69
    first, back, second = capsys.readouterr().err.splitlines()
    assert first == second and first.startswith(f"{away}; ") and "answers again" in back


class Server:
    """The server as a program, which is killed and started again upon the same store and address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self._process: Process | None = None

    async def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*HANGDOG, "server", "--listen", self.address, "--store", str(self._folder / "s.db")),
                stdout=PIPE, stderr=log,
            )  # fmt: skip
        assert self._process.stdout is not None
        assert (await self._process.stdout.readline()).startswith(b"listening on")

    async def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    def stage(self) -> Stage:
        return Stage(self.address, Store.__new__(Store), PATIENT, PieceCache())


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Server]:
    server = Server(folder)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@asynccontextmanager
async def command(server: Server, *words: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(*HANGDOG, *words, "--server", server.address), stdout=PIPE, stderr=PIPE, env=os.environ
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def ended(process: Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(60):
        out, said = await process.communicate()
    return process.returncode, out.decode(), said.decode()


@asynccontextmanager
async def agent(server: Server, rank: int) -> AsyncIterator[Agent]:
    on = server.stage()
    name = f"m{rank}"
    async with on.agent(name) as made:
        await made.hello(llama=[rank])
        await on.knows(name)
        yield made


@pytest.mark.slow
async def test_snapshot_and_watch_go_on_with_the_same_incident(tmp_path: Path) -> None:
    async with served(tmp_path) as server, AsyncExitStack() as stack:
        async with agent(server, 0) as a, agent(server, 1) as b:
            asking = await stack.enter_async_context(
                command(server, "snapshot", "--job", "llama", "--rounds", "1", "--format", "json")
            )
            await asyncio.gather(a.order(), b.order())
            with Client(server.address) as client:
                (begun,) = await asyncio.to_thread(client.incidents)
            watching = await stack.enter_async_context(command(server, "watch", begun.id, "--format", "json"))
            assert watching.stdout is not None
            await watching.stdout.readline()  # it has said where the incident is
            await server.kill()
        await asyncio.sleep(3)
        await server.start()
        async with agent(server, 0) as a, agent(server, 1) as b:
            for rank, one in enumerate((a, b)):
                await one.answer(await one.order(), trainer(rank), last=True)
            status, out, said = await ended(asking)
            assert status in (0, 1, 2) and '"schema": "hangdog.verdict/1"' in out, said
            assert "asking again" in said and "answers again" in said
            again, shown, _ = await ended(watching)
            assert again == status and '"hangdog.verdict/1"' in shown
        with Client(server.address) as client:
            assert [line.id for line in await asyncio.to_thread(client.incidents)] == [begun.id]


@pytest.mark.slow
async def test_diagnose_goes_on_with_the_same_campaign(tmp_path: Path) -> None:
    async with served(tmp_path) as server, AsyncExitStack() as stack:
        async with machines(server.stage(), a=lambda order: None, b=lambda order: None) as silent:
            words = ("test", "run", "--machines", "a,b", "--level", "1", "--budget", "2m", "--format", "json")
            asking = await stack.enter_async_context(command(server, *words))
            await silent["a"].ordered()
            await server.kill()
        await asyncio.sleep(2)
        await server.start()
        async with machines(server.stage(), a=lambda order: report(1, "fail"), b=lambda order: report(1)):
            status, out, said = await ended(asking)
        assert status in (0, 1, 2) and '"verdict"' in out, said
        assert "asking again" in said and "answers again" in said


@pytest.mark.slow
async def test_a_server_that_does_not_come_back_ends_a_command_with_69(tmp_path: Path) -> None:
    script = (
        "import hangdog.retry as r, functools, hangdog.commands.oncall.snapshot as s\n"
        "s.RetryPolicy = functools.partial(r.RetryPolicy, timeout_s=3.0, interval_s=0.5)\n"
        "from hangdog.main import main; main()"
    )
    async with served(tmp_path) as server, agent(server, 0) as a:
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script, "snapshot", "--job", "llama", "--server", server.address),
            stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        await a.order()
        await server.kill()
        status, _, said = await ended(asking)
    assert status == 69 and "may continue" in said and "hangdog watch " in said
