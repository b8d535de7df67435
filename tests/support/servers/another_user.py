"""Asks a server as another user of this machine: `python -m support.servers.another_user UID GROUP,... ADDRESS WHAT...`, started by root.

It prints what came of each in a line. All that it needs is loaded before it becomes that user, who may be let see no Python.
"""

import encodings.idna  # noqa: F401  # looked for with the first host name, by which time it cannot be read any more
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc

from hangdog_models.errors import HangdogError
from hangdog_proto.client.incidents import Client
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import AgentsStub

#: Users and a group that no machine has by itself.
STRANGER, MEMBER, GROUP = 61_001, 61_002, 61_003


def agent(address: str) -> str:
    """Speaks for a machine."""
    with grpc.insecure_channel(address) as channel:
        hello = pb.FromAgent(hello=pb.Hello(machine="forged", version="1"))
        for answer in AgentsStub(channel).Connect(iter([hello])):
            return f"allowed {answer.WhichOneof('body')}"
        return "nothing"


def page(address: str) -> str:
    """Closes the breaker over HTTP, as a script does."""
    asked = urllib.request.Request(f"{address}/api/breaker/close", b'{"because": "x"}', method="POST")
    asked.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return f"allowed {answer.status}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


ASKED: dict[str, Callable[[str], object]] = {
    "look": lambda address: Client(address).machines(),
    "trigger": lambda address: list(Client(address).snapshot("nothing-of-that-name")),
    "act": lambda address: Client(address).act("close-breaker", reason="x"),
}


def one(address: str, what: str) -> str:
    """What comes of asking one thing, in one line."""
    try:
        if what in ("agent", "page"):
            return {"agent": agent, "page": page}[what](address)
        ASKED[what](address)
        return "allowed"
    except HangdogError as error:
        return f"{error.exit_code} {error}"
    except grpc.RpcError as error:
        return str(error).replace("\n", " ")


def ask(uid: int, address: str, *whats: str, groups: tuple[int, ...] = ()) -> list[str]:
    """What a server answers that user, asked one thing after another."""
    command = (
        sys.executable,
        "-m",
        "support.servers.another_user",
        str(uid),
        ",".join(map(str, groups)),
        address,
        *whats,
    )
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


if __name__ == "__main__":
    _, user, its, server, *asked = sys.argv
    os.setgroups([int(group) for group in its.split(",") if group])
    os.setgid(int(user))
    os.setuid(int(user))
    for what in asked:
        print(one(server, what))
