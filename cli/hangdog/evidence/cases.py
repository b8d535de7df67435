"""What an incident's verdict was drawn from, of a server or of a bundle, for the commands that look closer at it."""

import re
from dataclasses import dataclass
from pathlib import Path

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models import topology
from hangdog_models.counts import counted
from hangdog_models.diagnosis.judge import investigate
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.conclude import conclude
from hangdog_models.errors import OurFault, UnreadableEvidence, WrongUse
from hangdog_models.incident import UNDER_WAY
from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import DEFAULTS
from hangdog_models.reading.printable import printable
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import TRAINER
from hangdog_models.topology import Layout, Topology
from hangdog_models.verdict import Verdict
from hangdog_models.views.one_rank import RankView, of_rank
from hangdog_proto.client.incidents import Client, StoredIncident
from hangdog_proto.client.server_address import ServerAddress
from hangdog_server.incidents.replay import Replayed, StoredRound, replay

#: What the beginning of an incident's name looks like; a folder that is called so is meant by `./3fa9`.
_NAME = re.compile(r"[0-9a-f]{1,12}")
#: Endings of a bundle in one file: one that is not there must not be asked of a server.
_ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar.zst")
#: Characters of a name in a sentence.
NAMED = 80


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one standstill. `incident` is empty of a bundle, whose `told` verdict is None."""

    name: str
    incident: str
    snapshot: Snapshot
    topology: Topology
    server_verdict: Verdict | None = None

    @property
    def world_size(self) -> int:
        return self.topology.world_size

    def case(self) -> Case:
        """Who stands where and waits for whom, worked out here."""
        return investigate(self.snapshot, self.topology)

    def verdict(self, case: Case | None = None) -> Verdict:
        """The server's verdict, or, where there is none, the one that `hangdog triage` comes to."""
        return self.server_verdict or conclude(case or self.case())

    def as_json(self) -> dict[str, object]:
        """Which one it is, as the first fields of a JSON document."""
        return {
            "incident": self.incident or None,
            "bundle": None if self.incident else self.name,
            "job": self.snapshot.job.id,
        }

    def processes_of(self, rank: int, round_number: int | None = None) -> tuple[RankView, ...]:
        """The processes of a rank, trainer first; raises WrongUse for one the job has not, UnreadableEvidence for one unseen."""
        if rank >= self.world_size:
            has = f"{self.named} has {counted(self.world_size, 'rank')}"
            raise WrongUse(
                f"{has}: there is no rank {rank}", f"name one of 0-{self.world_size - 1}", code="no-such-rank"
            )
        if round_number is not None and round_number not in {round_.number for round_ in self.snapshot.rounds}:
            looks = ", ".join(str(round_.number) for round_ in self.snapshot.rounds) or "none"
            raise WrongUse(f"{self.named} has no look {round_number}", f"it has: {looks}", code="no-such-round")
        found = of_rank(self.snapshot.rounds, Rank(rank), round_number)
        if not found:
            what = f"nothing was seen of rank {rank} in {self.named}"
            raise UnreadableEvidence(
                what,
                f"`hangdog ranks {self.short} --rank {rank}` says why, where that is known",
                code="no-evidence-of-rank",
            )
        return found

    def stack(self, rank: int) -> RankView:
        """The trainer of a rank; raises what `seen` raises, also where nothing of its stack was captured."""
        found = next((one for one in self.processes_of(rank) if one.trace.role == TRAINER), None)
        if found is None or not found.trace.threads:
            why = f": {printable(str(found.trace.missing), NAMED)}" if found and found.trace.missing else ""
            hint = f"`hangdog stacks {self.short} {rank}` shows what else is known of it"
            raise UnreadableEvidence(f"no stack of rank {rank} was captured{why}", hint, code="no-evidence-of-rank")
        return found

    @property
    def named(self) -> str:
        """Which one it is, in a sentence."""
        return f"{'incident' if self.incident else 'bundle'} {printable(self.name, NAMED)}"

    @property
    def short(self) -> str:
        """How a command is told which one it is."""
        return printable(self.name, NAMED)


def evidence(where: str, server: ServerAddress) -> Evidence:
    """The evidence of an incident, by the beginning of its name, or of the bundle at a path; raises HangdogError."""
    if _path(where):
        snapshot, layout = open_bundle(Path(where), DEFAULTS, None)
        return _placed(where, "", snapshot, layout, None)
    with Client(server) as client:
        stored = client.stored(where)
    found = replay_incident(stored)
    return _placed(stored.line.id, stored.line.id, found.snapshot, found.layout, stored.verdict)


def replay_incident(stored: StoredIncident) -> Replayed:
    """What the server judged, put together again; raises WrongUse where nothing has come yet, OurFault where it cannot be."""
    if stored.line.state in UNDER_WAY and not stored.captures:
        raise WrongUse(
            f"incident {stored.line.id} has no captures yet", f"hangdog watch {stored.line.id}", code="no-captures-yet"
        )
    try:
        return replay(stored.line.job, stored.asked, (StoredRound(*capture) for capture in stored.captures))
    except (KeyError, TypeError, ValueError) as error:
        what = f"the captures of incident {stored.line.id} cannot be read: {type(error).__name__}: {error}"
        raise OurFault(
            what,
            "another version of hangdog may have stored it, or its capture is not finished",
            code="unreadable-answer",
        ) from error


def _placed(name: str, incident: str, snapshot: Snapshot, layout: Layout, server_verdict: Verdict | None) -> Evidence:
    shape, _ = topology.build(layout, snapshot.highest_rank())
    return Evidence(name, incident, snapshot, shape, server_verdict)


def _path(where: str) -> bool:
    if "/" in where or where.startswith(".") or where.lower().endswith(_ARCHIVES):
        return True
    return not _NAME.fullmatch(where) and Path(where).exists()
