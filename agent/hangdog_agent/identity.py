"""Who an agent is, to the server that it calls."""

from dataclasses import dataclass
from pathlib import Path

from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.reach import Reach


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls whom: `server` is HOST:PORT, or several with commas, `machine` the name the agent speaks for.

    `tls` is the folder with this machine's certificate, `insecure` lets plain text cross a network.
    `boot` is the kernel's name for the machine's present start, `serial` its hardware's; empty: not known.
    """

    server: str
    machine: str
    version: str
    tls: Path | None = None
    insecure: bool = False
    boot: str = ""
    serial: str = ""

    def hello(self, diagnoses: bool) -> pb.Hello:
        """The first words on every stream; `diagnoses`: tests of this machine may be ordered."""
        return pb.Hello(
            machine=self.machine, version=self.version, paced=True, diagnoses=diagnoses,
            boot=self.boot, serial=self.serial,
        )  # fmt: skip

    def reach(self, server: str) -> Reach:
        """The way to one of the servers."""
        return Reach(server, self.tls, insecure=self.insecure)
