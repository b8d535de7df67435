"""What an agent may be told about tests of its machine. It is never code."""

from dataclasses import dataclass

from hangdog_proto.generated import hangdog_pb2 as pb


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Has a machine, which is number `member` of `members`, run levels of the ladder for `deadline_s` seconds at most.

    They meet at `meet`, which member 0 chooses by the `addresses` of the others, as the server sees them.
    """

    launch: str
    levels: tuple[int, ...]
    repetitions: int
    deadline_s: float
    members: tuple[str, ...]
    member: int
    meet: str = ""
    addresses: tuple[str, ...] = ()

    def packed(self) -> pb.ToAgent:
        """As it is sent."""
        order = pb.Diagnose(
            launch=self.launch, levels=self.levels, repetitions=self.repetitions, deadline_s=self.deadline_s,
            members=self.members, member=self.member, meet=self.meet, addresses=self.addresses,
        )  # fmt: skip
        return pb.ToAgent(diagnose=order)


@dataclass(frozen=True, slots=True)
class Abort:
    """Has a machine end a launch."""

    launch: str

    def packed(self) -> pb.ToAgent:
        """As it is sent."""
        return pb.ToAgent(abort=pb.Abort(launch=self.launch))
