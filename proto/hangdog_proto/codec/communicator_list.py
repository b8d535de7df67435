"""The border between the wire's lines of communicators and our noun, from a server to whoever asks it."""

from hangdog_models.progress.communicator_window import CommunicatorState, JobCommunicator, StragglerRanks
from hangdog_models.ranks import Rank
from hangdog_proto.generated import hangdog_pb2 as pb


def pack(one: JobCommunicator) -> pb.CommunicatorLine:
    """Writes a communicator."""
    return pb.CommunicatorLine(
        communicator=one.communicator, name=one.name, size=one.size, seen=one.seen, machines=one.machines, state=one.state,
        rate=one.rate, lowest=one.lowest, highest=one.highest,
        behind=[pb.Stragglers(machine=each.machine, ranks=each.ranks) for each in one.behind],
        behind_ranks=one.behind_ranks, idle_s=one.idle_s, age_s=one.age_s, operation=one.operation, oldest=one.oldest,
        completed_only=one.completed_only,
    )  # fmt: skip


def unpack(line: pb.CommunicatorLine) -> JobCommunicator:
    """Reads what `pack` wrote; a state of a newer server is none that we know to be bad."""
    known = line.state in list(CommunicatorState)
    return JobCommunicator(
        communicator=line.communicator,
        name=line.name,
        size=line.size,
        seen=line.seen,
        machines=line.machines,
        state=CommunicatorState(line.state) if known else CommunicatorState.MOVES,
        rate=line.rate,
        lowest=line.lowest if line.HasField("lowest") else None,
        highest=line.highest if line.HasField("highest") else None,
        behind=tuple(StragglerRanks(each.machine, tuple(map(Rank, each.ranks))) for each in line.behind),
        behind_ranks=line.behind_ranks,
        idle_s=line.idle_s,
        age_s=line.age_s if line.HasField("age_s") else None,
        operation=line.operation,
        oldest=line.oldest,
        completed_only=line.completed_only,
    )
