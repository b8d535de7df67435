"""What an agent may be told. It is never code."""

from dataclasses import dataclass

from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.ranks import Rank
from hangdog_proto.generated import hangdog_pb2 as pb


@dataclass(frozen=True, slots=True)
class CaptureCommand:
    """What may be asked of an agent: to look at a job `rounds` times, `interval_s` apart.

    `native`: only at these ranks, with their native frames. `light`: stopping nobody, asking no library. `together`: the
    first look may come with the last. `job` is the name by which the agents know it, `owner` whose it is.
    """

    name: str
    job: str
    rounds: int
    interval_s: float
    native: tuple[Rank, ...] = ()
    light: bool = False
    together: bool = False
    owner: Owner = UNKNOWN


@dataclass(frozen=True, slots=True)
class RecheckCommand:
    """Asks an agent to look closer at a job's pulses for so many seconds. `steps`: some machine has seen it make steps."""

    job: str
    seconds: float
    owner: Owner = UNKNOWN
    steps: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """Tells an agent that what it recorded is kept, or, with a reason, never will be."""

    id: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """Asks an agent what digests stand for that a capture named, 16 bytes each."""

    digests: bytes


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Tells an agent that another server leads a job of its machine, and where that one is."""

    job: str
    address: str


@dataclass(frozen=True, slots=True)
class Pace:
    """Tells an agent how many seconds its signs of life may be apart from now on."""

    heartbeat_s: float


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Has a machine, which is number `member` of `members`, run levels of the ladder for `deadline_s` seconds at most.

    They meet at `meet`, which member 0 chooses by the `addresses` of the others, as the server sees them. `replay` names
    what level 5 replays; which command that is, only the machine knows.
    """

    launch: str
    levels: tuple[int, ...]
    repetitions: int
    deadline_s: float
    members: tuple[str, ...]
    member: int
    meet: str = ""
    addresses: tuple[str, ...] = ()
    replay: str = ""

    def packed(self) -> pb.ToAgent:
        """As it is sent."""
        order = pb.Diagnose(
            launch=self.launch, levels=self.levels, repetitions=self.repetitions, deadline_s=self.deadline_s,
            members=self.members, member=self.member, meet=self.meet, addresses=self.addresses, replay=self.replay,
        )  # fmt: skip
        return pb.ToAgent(diagnose=order)


@dataclass(frozen=True, slots=True)
class Abort:
    """Has a machine end a launch."""

    launch: str

    def packed(self) -> pb.ToAgent:
        """As it is sent."""
        return pb.ToAgent(abort=pb.Abort(launch=self.launch))


@dataclass(frozen=True, slots=True)
class Renewed:
    """The answer to an agent that asked for a certificate: one, as PEM, or why there is none."""

    certificate: bytes = b""
    refused: str = ""

    def packed(self) -> pb.ToAgent:
        """As it is sent."""
        return pb.ToAgent(renewed=pb.Renewed(certificate=self.certificate, refused=self.refused))


Command = CaptureCommand | RecheckCommand | Receipt | Need | Elsewhere | Pace | Diagnose | Abort | Renewed
