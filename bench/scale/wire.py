"""The agent's side of a gRPC stream with nothing around it: some ten thousand lines in one process cost as little as they can.

What goes over TCP is what gRPC's own client sends: HTTP/2 (RFC 9113) with a window for each direction, pings when nothing was
heard for a while, one call on a connection or several. Headers are written without compression and never read: a call that
ends, for whatever reason, is gone.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable

#: Frames and flags of RFC 9113.
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
#: Names of settings.
_INITIAL_WINDOW, _MAX_FRAME = 4, 5
#: What either side may send before it hears more, and the largest frame, unless the other says otherwise.
_WINDOW, _FRAME = 65535, 16384
#: What the server may send to a line in all its life: it sends orders.
_ROOM = 1 << 30
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">BHBBL")

Hear = Callable[[bytes], None]


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame as it is written."""
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def _request(path: str, authority: str) -> bytes:
    """The headers of a gRPC call, in HPACK (RFC 7541) without its tables' dynamic part."""
    return b"".join(
        (
            b"\x83\x86",  # :method POST, :scheme http
            b"\x04" + _text(path),
            b"\x01" + _text(authority),
            b"\x00" + _text("content-type") + _text("application/grpc"),
            b"\x00" + _text("te") + _text("trailers"),
            b"\x00" + _text("user-agent") + _text("hangdog-bench"),
        )
    )


def _text(said: str) -> bytes:
    assert len(said) < 127, said
    return bytes((len(said),)) + said.encode()


class Call:
    """One call; `hear` is given each message of the server, `send` takes ours."""

    def __init__(self, line: "Line", number: int, hear: Hear) -> None:
        self.hear = hear
        self.window = line.first_window
        self._line = line
        self._number = number
        self._waiting: deque[bytes] = deque()
        self._heard = b""

    def send(self, *messages: bytes) -> None:
        """Sends messages, in one write where the server's window lets it."""
        self._waiting.extend(b"\0" + len(message).to_bytes(4, "big") + message for message in messages)
        self._line.write(self.ready())

    def ready(self) -> bytes:
        """What waits and may be written now."""
        frames = []
        while self._waiting and (room := min(self.window, self._line.window, self._line.max_frame)) > 0:
            first = self._waiting.popleft()
            if len(first) > room:
                self._waiting.appendleft(first[room:])
                first = first[:room]
            self.window -= len(first)
            self._line.window -= len(first)
            frames.append(frame(DATA, 0, self._number, first))
        return b"".join(frames)

    def take(self, payload: bytes) -> None:
        """Takes in what the server sent, which may be a part of a message or several."""
        self._heard += payload
        while len(self._heard) >= 5 and len(self._heard) >= (end := 5 + int.from_bytes(self._heard[1:5], "big")):
            message, self._heard = self._heard[5:end], self._heard[end:]
            self.hear(message)


class Line(asyncio.Protocol):
    """One connection; its calls end with it."""

    def __init__(self, authority: str, now: Callable[[], float]) -> None:
        self.calls: dict[int, Call] = {}
        self.first_window = self.window = _WINDOW
        self.max_frame = _FRAME
        #: When anything was heard last, and when the ping was sent that is not answered yet.
        self.heard_at = now()
        self.pinged_at: float | None = None
        #: The longest that a ping waited for its answer. Seconds.
        self.slowest_s = 0.0
        self._authority = authority
        self._now = now
        self._next = 1
        self._heard = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        window = struct.pack(">HL", _INITIAL_WINDOW, _ROOM)
        self.write(_PREFACE + frame(SETTINGS, 0, 0, window) + frame(WINDOW, 0, 0, struct.pack(">L", _ROOM)))

    def connection_lost(self, error: Exception | None) -> None:
        self.calls.clear()

    def call(self, path: str, hear: Hear) -> Call:
        """Begins a call."""
        number, self._next = self._next, self._next + 2
        call = self.calls[number] = Call(self, number, hear)
        self.write(frame(HEADERS, END_HEADERS, number, _request(path, self._authority)))
        return call

    def write(self, data: bytes) -> None:
        """Writes frames."""
        if data and self._transport is not None:
            self._transport.write(data)

    def ping(self) -> None:
        """Asks whether the server is still there."""
        if self.pinged_at is None:
            self.pinged_at = self._now()
            self.write(frame(PING, 0, 0, b"hangdog!"))

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._now()
        heard, at = self._heard + data, 0
        while len(heard) - at >= 9:
            high, low, kind, flags, number = _HEAD.unpack_from(heard, at)
            end = at + 9 + (high << 16 | low)
            if len(heard) < end:
                break
            self._take(kind, flags, number, heard[at + 9 : end])
            at = end
        self._heard = heard[at:]

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == DATA:
            assert not flags & PADDED, "gRPC's server pads nothing"
            if call := self.calls.get(number):
                call.take(payload)
        elif kind == PING and flags & ACK:
            self.slowest_s = max(self.slowest_s, self._now() - (self.pinged_at or self._now()))
            self.pinged_at = None
        elif kind == PING:
            self.write(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS and not flags & ACK:
            self._set(payload)
            self.write(frame(SETTINGS, ACK, 0, b""))
        elif kind == WINDOW:
            self._widen(number, int.from_bytes(payload, "big"))
        elif kind == GOAWAY:
            self.calls.clear()
        if kind == RST or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self.calls.pop(number, None)

    def _set(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HL", payload):
            if name == _MAX_FRAME:
                self.max_frame = value
            elif name == _INITIAL_WINDOW:
                for call in self.calls.values():
                    call.window += value - self.first_window
                self.first_window = value

    def _widen(self, number: int, more: int) -> None:
        if number:
            if call := self.calls.get(number):
                call.window += more
                self.write(call.ready())
            return
        self.window += more
        for call in list(self.calls.values()):
            self.write(call.ready())


async def connected(address: str, number: int) -> Line:
    """The connection of that number to `HOST:PORT`, from an address that a thousand share.

    Over plain text a server takes some thousands of one address.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    own = (f"127.0.1.{1 + number // 1000 % 250}", 0) if host.startswith("127.") else None
    _, line = await loop.create_connection(lambda: Line(address, loop.time), host, int(port), local_addr=own)
    return line
