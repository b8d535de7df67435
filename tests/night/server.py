"""The server of a night, in a process of its own: `python server.py FOLDER WEB`, until its stdin ends.

The folder has tokens.json, acting.toml and notify.toml. Of the real server two waits are shorter or longer, named below.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

from hangdog_models.diagnosis.judge import diagnose
from hangdog_server.listener import ListenerConfig
from hangdog_server.main import serve
from hangdog_server.notifications import notify_loop
from hangdog_server.settings import ServerSettings

#: Between two looks at a job that seems to stand still: longer than usual, so that people see what is shown meanwhile. Seconds.
LOOK_S = 6.0
#: A job that moves for so long is told to have gone on; an hour's worth of nights would wait for the usual minute. Seconds.
RECOVERED_S = 5.0


def main(folder: Path, web: str) -> None:
    """Serves until stdin ends; prints the address once agents can connect."""
    notify_loop.RECOVERED_S = RECOVERED_S
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    asyncio.run(
        serve(
            "127.0.0.1:0",
            folder / "incidents.db",
            diagnose,
            lambda address: print(address, flush=True),
            replace(ServerSettings(), returned_s=0.0, interval_s=LOOK_S),
            ListenerConfig(tokens=folder / "tokens.json", audit=folder / "audit.jsonl", web=web),
            acting=folder / "acting.toml",
            notify=folder / "notify.toml",
        )
    )


def _end_with_stdin() -> None:
    with contextlib.suppress(OSError):
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
