"""An Alertmanager of the tests' own, on a free port, where one is installed."""

import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MISSING = "Alertmanager is not installed: apt-get install --no-install-recommends prometheus-alertmanager"
NAMES = "prometheus-alertmanager", "alertmanager"


@contextmanager
def started() -> Iterator[str | None]:
    """Its address for as long as the block lasts; None where it is not installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        yield None
        return
    with socket.socket() as taken, tempfile.TemporaryDirectory(prefix="hangdog-am-") as folder:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        taken.close()
        conf = Path(folder) / "conf.yml"
        conf.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
        options = [f"--config.file={conf}", f"--storage.path={folder}/data", f"--web.listen-address={address}"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([program, *options, "--cluster.listen-address="], stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while not _ready(address):
                assert process.poll() is None and time.monotonic() < until, (Path(folder) / "log").read_text()
                time.sleep(0.1)
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(20)


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
