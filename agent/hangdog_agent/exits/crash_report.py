"""Writes what is known of a crash for the server."""

from collections.abc import Sequence

from hangdog_agent.exits.crash_monitor import Fall
from hangdog_models.counts import counted
from hangdog_models.exits import Exit, failed
from hangdog_models.findings import Finding
from hangdog_models.stack import TRAINER, Missing, ProcessTrace, Reason
from hangdog_proto.codec import exits as codec
from hangdog_proto.codec import findings as found
from hangdog_proto.codec import traces
from hangdog_proto.generated import hangdog_pb2 as pb


def report(
    fall: Fall, exits: Sequence[Exit], logged: Sequence[Finding], checks: Sequence[Finding], stall: str
) -> pb.Spooled:
    """The message, but for the job; `exits` are the ends of its trainers, `logged` their last words and `checks` what was found of the machine.

    `stall` names the crash among all that this agent tells of.
    """
    first_s = min(one.at_s for one in exits)
    capture = traces.pack(list(_traces(fall, exits)))
    capture.exits.extend(codec.pack(exits, first_s))
    capture.findings.extend(found.pack([*logged, *checks]))
    return pb.Spooled(
        stall=stall,
        captured=pb.Captured(order=stall, round=0, capture=capture, last=True),
        rounds=1,
        why=_why(exits, logged),
        crash=True,
    )


def _traces(fall: Fall, exits: Sequence[Exit]) -> list[ProcessTrace]:
    words = {one.rank: one.words for one in exits}
    return [
        ProcessTrace(
            member.rank,
            TRAINER,
            member.process.pid,
            missing=Missing(Reason.NO_EVIDENCE, words.get(member.rank, "it had not ended when the others had")),
        )
        for member in fall.trainers.values()
    ]


def _why(exits: Sequence[Exit], logged: Sequence[Finding]) -> str:
    fell = failed(exits, logged)
    rest = len(exits) - 1
    return f"rank {fell[0].rank}: {fell[0].words}" + (f"; {counted(rest, 'other rank')} ended as well" if rest else "")
