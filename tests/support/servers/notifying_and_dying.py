"""One server's life as a program: it tells of what is in a store, by a line in a file, and kills itself with -9 where it is asked to.

`STORE FOLDER WHERE`: `before` or `after` the first message is sent, or `never`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from hangdog_server.notifications.message import Message
from hangdog_server.notifications.notify_config import Receiver
from hangdog_server.notifications.send import Posted
from support.servers.notified import watched


async def live(where: str, folder: Path, dies: str) -> None:
    async with watched(where if "://" in where else Path(where), folder) as to:

        async def post(to: Receiver, message: Message) -> Posted:
            if dies == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            with (folder / "sent").open("a") as file:
                file.write(message.title + "\n")
            if dies == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return Posted()

        to.postman.post = post  # type: ignore[method-assign]
        to.begin()
        for _ in range(3):
            await to.tick(1)


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
