"""What a job talks to: a local server and files that are slow, or never answer."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

#: A shard holds so much, and a FIFO in its place gives so much a read.
SHARD = bytes(4096)
#: An upload is taken in so large parts, one every so often: 128 KiB a second.
PART, PART_S = 1 << 16, 0.5
#: What a slow service takes for a request. Seconds.
SLOW_S = 2.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.over = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if self.path == "/silent":
            self.server.over.wait()
            return
        if self.path == "/slow":
            self.server.over.wait(SLOW_S)
        answer = b'{"done": false}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_PUT(self) -> None:
        with suppress(OSError):
            while not self.server.over.wait(PART_S) and self.connection.recv(PART):
                pass

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def server() -> Iterator[str]:
    """A server of slow uploads, of judges that are never done, and of requests that are never answered; its address."""
    listening = _Server()
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.over.set()
        listening.shutdown()


@contextmanager
def slow_source(fifo: Path, every_s: float) -> Iterator[None]:
    """Gives the readers of a FIFO their content, each time late by so much."""
    with _thread(lambda over: _feed(fifo, every_s, over)):
        yield


@contextmanager
def slow_sink(fifo: Path) -> Iterator[None]:
    """Takes what is written to a FIFO, slowly."""
    with _thread(lambda over: _drain(fifo, over)):
        yield


@contextmanager
def stalled_sink(fifo: Path) -> Iterator[None]:
    """Opens what is written to a FIFO, and never takes it, as a mount whose server has gone."""
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield
    finally:
        os.close(end)


@contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """A FIFO that nobody writes, in the place of a shard; afterwards the shard is back and readers get their content."""
    fifo, own = path.with_name(f"{path.name}.fifo"), path.with_name(f"{path.name}.own")
    os.mkfifo(fifo)
    os.link(path, own)
    os.link(fifo, path.with_name("other"))
    path.with_name("other").replace(path)
    try:
        yield fifo
    finally:
        own.replace(path)
        for _ in range(10):
            _write(fifo)
            time.sleep(0.1)
        fifo.unlink()


@contextmanager
def _thread(run: Callable[[threading.Event], None]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=run, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _feed(fifo: Path, every_s: float, over: threading.Event) -> None:
    while not over.wait(every_s):
        _write(fifo)


def _write(fifo: Path) -> None:
    try:
        end = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENOENT):  # nobody reads just now
            raise
        return
    with suppress(BrokenPipeError, BlockingIOError):
        os.write(end, SHARD)
    os.close(end)


def _drain(fifo: Path, over: threading.Event) -> None:
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while not over.wait(PART_S):
            with suppress(BlockingIOError):
                os.read(end, PART)
    finally:
        os.close(end)
