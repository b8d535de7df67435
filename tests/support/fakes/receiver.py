"""An HTTP service of the tests' own that keeps what it is sent and answers as the test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Receiver:
    """`status` and `says` are its next answers', `requests` what came: method and path, headers in small letters, body.

    `silent`: it hangs up without an answer; `slow`: its answer comes a byte at a time and takes ten seconds.
    """

    url: str = ""
    status: int = 200
    headers: str = ""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    silent: bool = False
    slow: bool = False
    says: bytes = b"what"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.requests.append((" ".join(head[0].split()[:2]), headers, body))
            if not self.silent:
                length = 204 if self.slow else len(self.says)
                said = (
                    f"HTTP/1.1 {self.status} x\r\n{self.headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
                )
                writer.write(said.encode() + self.says)
                await writer.drain()
            for _ in range(200 if self.slow else 0):
                await asyncio.sleep(0.05)
                writer.write(b"x")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.answer, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
