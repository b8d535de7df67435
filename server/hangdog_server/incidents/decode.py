"""Turns what agents say into nouns, suspiciously: looks, jobs and what was recorded while no server was there."""

import math
import re

from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.printable import printable
from hangdog_proto.codec import collectives, dedup, exits, owners, wrong_numbers
from hangdog_proto.codec import findings as found
from hangdog_proto.codec import rounds as together
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.gather import FURTHER, RoundAnswer
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.protocol.rejections import Denial, TurnedAway
from hangdog_server.settings import ServerSettings
from hangdog_server.store.offline_captures import OfflineCapture

#: Characters of a machine's or job's name: DNS allows 253, a Kubernetes name with its namespace stays below.
NAME = 253
#: Names of replays that are taken from one agent: as many as its file may hold.
REPLAYS = 64
#: Ranks one machine may announce of one job: 16 GPUs, or some hundred processes on CPU.
RANKS = 4096
#: What an agent says of one job beside the rest.
_NOTES = 16
#: The UID of a pod; of one that kubelet began by itself, the hash of its manifest.
_POD = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
#: Characters of a reason somebody gives for asking, and of a topology.
WHY = 1000
#: Characters of the ids that agents give to what they recorded.
_ID = 100
#: Nothing recorded is believed to be older; a year of seconds.
_OLDEST_S = 366 * 86400.0


def answer(machine: str, captured: pb.Captured, dictionary: PieceCache) -> RoundAnswer:
    """An agent's look; one that cannot be read is still an answer."""
    capture = captured.capture
    reported = collectives.unpack_all(capture)
    try:
        traces, unreadable = dedup.unpack(capture, dictionary, tids=False), ""
    except UnreadableEvidence as error:
        traces, unreadable = (), str(error)
    ends = exits.unpack(capture.exits)
    findings = found.unpack(capture.findings, machine, {one.rank for one in ends}) if capture.findings else ()
    return RoundAnswer(
        machine, captured.round, traces, captured.last, unreadable, reported, captured.more, findings, ends,
        wrong_numbers.unpack(capture.numbers), found.addresses(capture.addresses),
    )  # fmt: skip


def looks(machine: str, captured: pb.Captured, dictionary: PieceCache) -> list[RoundAnswer]:
    """The looks of an agent's message, those `before` first, then its own; raises WrongUse when they are too many."""
    if len(captured.before) > together.MOST_EARLIER:
        raise WrongUse(
            f"{len(captured.before)} looks before another one; {together.MOST_EARLIER} at most",
            code="impossible-report",
        )
    # what was ordered is a look: crashes and wrong numbers are reported otherwise
    del captured.capture.exits[:], captured.capture.numbers[:]
    last = answer(machine, captured, dictionary)
    return [*(_before(last, before, captured.capture, dictionary) for before in captured.before), last]


def _before(last: RoundAnswer, before: pb.Before, after: pb.Capture, dictionary: PieceCache) -> RoundAnswer:
    if before.HasField("capture"):
        return answer(last.machine, pb.Captured(round=before.round, capture=before.capture), dictionary)
    try:
        if last.unreadable:
            raise UnreadableEvidence(
                f"it depends on the next look, which cannot be read: {last.unreadable}", code="damaged-message"
            )
        traces = together.rebuilt_traces(last.traces, after, before)
    except UnreadableEvidence as error:
        return RoundAnswer(last.machine, before.round, unreadable=str(error))
    return RoundAnswer(last.machine, before.round, traces)


def local_jobs(presence: pb.Presence, settings: ServerSettings) -> dict[str, AnnouncedJob]:
    """The jobs a machine announces, by name and owner; raises WrongUse when they cannot be true."""
    if len(presence.jobs) > settings.max_jobs:
        raise WrongUse(
            f"{len(presence.jobs)} jobs on one machine; {settings.max_jobs} at most", code="impossible-report"
        )
    jobs = ((name(local.job, "job"), local_job(local)) for local in presence.jobs)
    return {f"{stated}@{local.owner}" if local.owner.known else stated: local for stated, local in jobs}


def local_job(local: pb.LocalJob) -> AnnouncedJob:
    """One job of a machine; raises WrongUse when it cannot be true."""
    if len(local.ranks) > RANKS or any(rank > MAX_RANK for rank in local.ranks) or local.world_size > MAX_RANK + 1:
        raise WrongUse(f"job {local.job} is announced with impossible ranks", code="impossible-report")
    ranks = tuple(Rank(rank) for rank in sorted(set(local.ranks)))
    contested = tuple(rank for rank in ranks if rank in set(local.contested[:RANKS]))
    meeting = printable(local.rendezvous, NAME)
    return AnnouncedJob(
        local.job,
        ranks,
        local.world_size or None,
        local.topology[:WHY],
        owners.unpack(local),
        meeting,
        contested,
        _pods(local),
        tuple(printable(note, WHY) for note in local.notes[:_NOTES]),
        printable(local.switch, NAME),
    )


def _pods(local: pb.LocalJob) -> tuple[str, ...]:
    """The pods that it runs in; raises WrongUse where they cannot be any: a truncated list would name too few."""
    if len(local.pods) > RANKS or not all(_POD.fullmatch(uid) for uid in local.pods):
        raise WrongUse(f"job {local.job} is announced with impossible pods", code="impossible-report")
    return tuple(sorted(set(local.pods)))


def name(stated: str, what: str, most: int = NAME) -> str:
    """A name as it may be printed and stored; raises WrongUse."""
    if not stated.strip() or len(stated) > most or not stated.isprintable():
        words = f"{stated[:most]!r} is no name of a {what}"
        raise TurnedAway(Denial.NAME, words, f"names are printable and at most {most} characters", code="bad-name")
    return stated


def recorded(machine: str, spooled: pb.Spooled, settings: ServerSettings, now: float) -> OfflineCapture:
    """A look that an agent took by itself; `now` is Unix time. Raises WrongUse when it cannot be true."""
    name(spooled.job.job, "job")
    number, rounds = spooled.captured.round, spooled.rounds
    if not 1 <= rounds <= settings.max_rounds or number >= rounds + FURTHER:
        raise WrongUse(f"look {number} of {rounds} is impossible", code="impossible-report")
    if not (math.isfinite(spooled.age_s) and 0 <= spooled.age_s <= _OLDEST_S):
        raise WrongUse(f"a stall {spooled.age_s:g} s ago is impossible", code="impossible-report")
    if not (math.isfinite(spooled.interval_s) and 0 <= spooled.interval_s <= settings.max_interval_s):
        raise WrongUse(f"looks {spooled.interval_s:g} s apart are impossible", code="impossible-report")
    if not (math.isfinite(spooled.stood_s) and 0 <= spooled.stood_s <= _OLDEST_S):
        raise WrongUse(f"a stall of {spooled.stood_s:g} s is impossible", code="impossible-report")
    local, began = local_job(spooled.job), now - spooled.age_s
    ends = exits.own(spooled.captured.capture.exits, local.ranks, began) if spooled.crash else []
    if spooled.crash and not ends:
        raise WrongUse("a crash is reported, but no rank of the machine ended", code="impossible-report")
    del spooled.captured.capture.exits[:]
    spooled.captured.capture.exits.extend(ends)
    numbers = wrong_numbers.own(spooled.captured.capture.numbers, local.ranks, began) if spooled.numbers else []
    if spooled.numbers and (spooled.crash or not numbers):
        raise WrongUse("wrong numbers are reported, but there are none, or it is a crash", code="impossible-report")
    del spooled.captured.capture.numbers[:]
    spooled.captured.capture.numbers.extend(numbers)
    return OfflineCapture(
        machine=machine,
        id=name(spooled.id, "spooled look", _ID),
        stall=name(spooled.stall, "standstill", _ID),
        local=local,
        began=began,
        round=number,
        last=spooled.captured.last,
        more=spooled.captured.more,
        rounds=rounds,
        interval_s=spooled.interval_s,
        why=printable(spooled.why, WHY),
        refused=spooled.refused,
        packed=spooled.captured.capture.SerializeToString(),
        boot=spooled.boot[:NAME],
        serial=spooled.serial[:NAME],
        stood_s=0.0 if spooled.crash or spooled.numbers else spooled.stood_s,
        crash=spooled.crash,
        life_s=max((one.ran_s for one in exits.unpack(ends)), default=0.0),
        numbers=spooled.numbers,
    )
