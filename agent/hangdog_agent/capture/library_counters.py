"""Asks the libraries of a job's trainers on this machine what they counted, all at once, and cuts the answers into messages."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from hangdog_agent.capture import inspector_dump, ras, ring_statement
from hangdog_agent.capture.flight_recorder import recorder
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_models.stack import Missing, Reason
from hangdog_proto.codec import collectives
from hangdog_proto.codec.collectives import Statement, StatementKind
from hangdog_proto.generated import hangdog_pb2 as pb

#: Ranks asked at the same time: all of a machine's, for each is mostly waited for; a child that asks takes 10 MiB.
_AT_ONCE = 32
#: Ranks of a job whose machines ask NCCL RAS, evenly spread: each answer speaks of all processes its own reaches, so that
#: more would only repeat it, and each question goes to all of them.
_ASKERS = 8
log = logging.getLogger(__name__)


def hear(
    trainers: Sequence[RankProcesses], tools: Tools, ended: Sequence[RankProcesses] = ()
) -> tuple[pb.Statement, ...]:
    """What the trainers' flight recorders, their rings and their NCCL RAS say, or why they do not, packed; by rank, RAS last.

    A rank without a ring of the profiler plug-in says nothing of one, but what NCCL Inspector wrote where it runs instead. Of
    trainers that have `ended` their rings tell.
    """
    asks = asks_ras(trainers) and bool(tools.settings.ras)
    if not trainers and not ended:
        return ()
    with ThreadPoolExecutor(min(_AT_ONCE, len(trainers) + len(ended)) + 1, "hangdog-hear") as pool:
        report = pool.submit(_guarded_ras, trainers[0], tools) if asks else None
        # the rings first: an answering recorder may take seconds, and the ranks of one moment are to be compared
        rings = pool.map(lambda member: _guarded_profiler(member, tools), (*trainers, *ended))
        received = list(pool.map(lambda member: _guarded_record(member, tools), trainers))
        seen = [ring for ring in rings if ring is not None]
        return (*received, *seen, *([report.result()] if report is not None else []))


def asks_ras(trainers: Sequence[RankProcesses]) -> bool:
    """Whether the machine of these trainers of one job is among those that ask NCCL RAS."""
    world = max((member.world_size for member in trainers), default=0)
    apart = max(1, -(-world // _ASKERS))
    return any(member.rank % apart == 0 for member in trainers)


def _guarded_record(member: RankProcesses, tools: Tools) -> pb.Statement:
    try:
        return collectives.pack(recorder.record(member, tools))
    except Exception as error:  # a bug met in asking one rank must not cost the others
        log.exception("cannot ask rank %d for its flight record", member.rank)
        return collectives.pack(Statement(StatementKind.RECORD, member.rank, missing=_bug(error)))


def _guarded_profiler(member: RankProcesses, tools: Tools) -> pb.Statement | None:
    try:
        stated = ring_statement.progress(member, tools) or inspector_dump.completed(member, tools)
        return collectives.pack(stated) if stated is not None else None
    except Exception:  # nor must one met in what a profiler plug-in keeps, which most trainers do not have
        log.exception("cannot read what the profiler plug-in of rank %d keeps", member.rank)
        return None


def _guarded_ras(member: RankProcesses, tools: Tools) -> pb.Statement:
    try:
        return collectives.pack(ras.report(member, tools))
    except Exception as error:  # nor must one met in asking NCCL cost the stacks
        log.exception("cannot ask NCCL RAS")
        return collectives.pack(Statement(StatementKind.RAS, None, missing=_bug(error)))


def _bug(error: Exception) -> Missing:
    return Missing(Reason.TOOL_FAILED, f"the agent failed: {type(error).__name__}: {error}")


def parcels(look: pb.Capture | None, received: Sequence[pb.Statement], most: int) -> list[pb.Capture]:
    """The statements in messages of at most `most` bytes (0: no bound), the first of them in the look's if there is one.

    One that is larger than a message by itself is left out, and says so. There is one message at least.
    """
    made = [pb.Capture() if look is None else look]
    size = made[0].ByteSize()
    for each in received:
        fits = _fitting(each, most)
        if most and size + _size(fits) > most and (made[-1].statements or made[-1] is look):
            made.append(pb.Capture())
            size = 0
        made[-1].statements.append(fits)
        size += _size(fits)
    return made


def _fitting(each: pb.Statement, most: int) -> pb.Statement:
    if not most or _size(each) <= most:
        return each
    words = f"deflated to {len(each.deflated)} bytes it is still longer than the {most} the server takes"
    missing = pb.Missing(reason=Reason.TOOL_FAILED, message=words)
    return pb.Statement(kind=each.kind, rank=each.rank, missing=missing)


def _size(each: pb.Statement) -> int:
    """Bytes of a statement within a capture, with its tag and length."""
    return each.ByteSize() + 8
