"""Runs a scheduler's own command: never through a shell, with a deadline, killed and reaped when it passes.

The agent's runner (`hangdog_agent.confinement.subprocesses`) is another one: it works in threads and drops rights first. Agent
and server import nothing of each other.
"""

import asyncio
import contextlib
from collections.abc import Mapping

from hangdog_server.actions.backends.backend import BackendFailed

#: Bytes of a command's answer: one machine's or one job's line is some KiB.
MOST = 1 << 20


async def run(
    command: tuple[str, ...], environ: Mapping[str, str], within_s: float, given: bytes = b""
) -> tuple[int, str, str]:
    """A command's exit status, output and complaints; raises BackendFailed when it cannot be run or does not end.

    `given` is its standard input: what nobody else on the machine may read, as they may a command line.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environ,
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        hint = "install it on the server's machine, or choose another actor"
        raise BackendFailed(
            f"{command[0]} is not installed here", hint, again=True, code="program-not-runnable"
        ) from None
    except OSError as error:
        raise BackendFailed(
            f"{command[0]} cannot be run: {error.strerror}", again=True, code="program-not-runnable"
        ) from error
    try:
        async with asyncio.timeout(within_s):
            out, complaints, _ = await asyncio.gather(
                _read(process.stdout), _read(process.stderr), _give(process.stdin, given)
            )
            status = await process.wait()
    except TimeoutError:
        raise BackendFailed(
            f"{command[0]} did not answer within {within_s:g} s",
            "is the scheduler up?",
            True,
            code="backend-unreachable",
        ) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return status, out, complaints


async def _give(stream: asyncio.StreamWriter | None, given: bytes) -> None:
    """Says what is given; who ends without having read it says so by its status."""
    if stream is None:
        return
    with contextlib.suppress(ConnectionError):
        stream.write(given)
        await stream.drain()
    stream.close()


async def _read(stream: asyncio.StreamReader | None) -> str:
    """All of a stream, up to the bound; the rest is read and dropped, so that who writes it comes to an end."""
    assert stream is not None  # it was opened as a pipe
    kept = bytearray()
    while chunk := await stream.read(1 << 16):
        kept += chunk[: MOST - len(kept)]
    return kept.decode("utf-8", "replace")
