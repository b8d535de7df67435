"""The machines of the cluster: whose agent is connected, which jobs run where, and who was lost lately.

`now` is in seconds on a steady clock. Nothing here waits: an order is laid into the line of its agent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import structs

from hangdog_models.actions.action_history import Body
from hangdog_models.errors import HangdogError
from hangdog_models.findings import Finding, aged
from hangdog_models.owner import UNKNOWN, Owner, same_owner
from hangdog_models.ranks import Rank
from hangdog_models.stack import Missing
from hangdog_server.auth.shown_certificates import ShownCertificates
from hangdog_server.cluster.connection import MISSED, Connection, PastConnection
from hangdog_server.cluster.job_registry import Roster
from hangdog_server.protocol.commands import Command, Pace
from hangdog_server.protocol.disconnects import Disconnect, meaning
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.protocol.rejections import Denial, TurnedAway
from hangdog_server.settings import ServerSettings

#: An agent is told another pace when the one it was told is so many times too short or too long: joining in thousands, each
#: would be told of every other one.
REPACED = 1.5
#: Between two times of dropping those who left too long ago: it goes over all of them. Seconds.
FORGET_S = 10.0


class Fleet:
    """All connected agents, and those that left within `settings.forget_s`."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._connected: dict[str, Connection] = {}
        self.certificates = ShownCertificates()
        self._left: dict[str, PastConnection] = {}
        self._disconnects: dict[str, Disconnect] = {}
        self._forgot = float("-inf")
        #: What each machine was by its agent's last Hello.
        self._bodies: dict[str, Body] = {}
        #: What each machine shares with others, by the labels of its node.
        self._domains: dict[str, tuple[str, ...]] = {}
        self._roster = Roster()
        #: All jobs, and the machines of each, put together when somebody asks; the watch over the jobs does every second.
        self._jobs: tuple[str, ...] | None = None
        self._running: dict[str, dict[str, AnnouncedJob]] = {}
        self._conflicts: dict[str, tuple[str, ...]] = {}
        #: Another number once anything is known of any machine that was not; signs of life alone are none.
        self.changes = 0

    @property
    def pace_s(self) -> float:
        """How far apart signs of life may be in a cluster of this size, in seconds."""
        settings = self._settings
        return max(settings.heartbeat_s, min(settings.heartbeat_most_s, len(self._connected) / settings.beats_per_s))

    @property
    def large(self) -> bool:
        """Whether one message of each machine is so much that signs of life are further apart for it."""
        return self.pace_s > self._settings.heartbeat_s

    def connect(
        self, machine: str, version: str, peer: str, now: float, paced: bool = False, body: Body | None = None
    ) -> Connection:
        """Takes an agent in; raises WrongUse when another living one speaks for its machine, or there are too many.

        The first one stays as long as it gives signs of life: two living agents of one name are a mistake of set-up
        (cloned host names), and letting each push the other out would blind both. A silent one is a half-open stream
        of a machine that was cut off, and gives way.
        """
        first = self._connected.get(machine)
        if first is not None:
            silent = now - first.last_message
            if not first.silent_s(now):
                raise TurnedAway(
                    Denial.TAKEN,
                    f"an agent at {first.peer} already speaks for {machine}, last heard {silent:.1f} s ago",
                    "end that agent, or give this one another --machine",
                    code="machine-name-taken",
                )
            first.end(
                TurnedAway(
                    Denial.REPLACED,
                    f"silent for {silent:.0f} s and replaced by the agent at {peer}",
                    code="machine-name-taken",
                )
            )
        elif len(self._connected) >= self._settings.max_machines:
            raise TurnedAway(
                Denial.FULL,
                f"{self._settings.max_machines} machines are connected, more are not taken",
                code="too-many-agents",
            )
        connection = Connection(machine, version, peer, now, self.pace_s, paced)
        self._connected[machine] = connection
        self._bodies[machine] = body or Body()
        self.changes += 1
        if machine in self._disconnects:
            self._disconnects[machine] = replace(self._disconnects[machine], back=True)
        return connection

    def hear(self, connection: Connection, now: float) -> None:
        """Notes that an agent said something, and tells it another pace if the cluster has grown or shrunk."""
        connection.last_message = now
        pace_s, reported_s = self.pace_s, connection.pace_s
        if not connection.paced or reported_s / REPACED < pace_s < reported_s * REPACED or connection.line.full():
            return
        connection.line.put_nowait(Pace(pace_s))
        connection.pace_s, connection.since = pace_s, now

    def announce(self, connection: Connection, jobs: Mapping[str, AnnouncedJob], now: float) -> None:
        """Notes what runs on a machine now; `connection.jobs` has it by what each job is called in the cluster."""
        connection.last_message = now
        if self._connected.get(connection.machine) is not connection:
            return  # replaced by another one, which speaks for the machine now
        before = self._roster.on(connection.machine)
        connection.jobs = self._roster.announce(connection.machine, jobs.values())
        self._changed({*before, *connection.jobs})
        self._left.pop(connection.machine, None)

    def disconnect(self, connection: Connection, now: float) -> bool:
        """Notes that a stream ended; True when with it the machine is gone (it was not replaced)."""
        machine = connection.machine
        if self._connected.get(machine) is not connection:
            return False
        del self._connected[machine]
        ended = self._roster.on(machine)
        self._roster.withdraw(machine)
        self._changed(ended)
        before = self._left.pop(machine, None)
        jobs = connection.jobs or (before.jobs if before else {})
        findings = _findings_of(connection, now) or (_findings_of(before, now) if before else ())
        if jobs:
            self._left[machine] = PastConnection(
                machine, connection.version, now, jobs, False, findings, connection.leaving
            )
        self._disconnects[machine] = Disconnect(
            machine, now, now - connection.last_message, connection.leaving, pace_s=connection.pace_s
        )
        self._forget(now)
        return True

    def gone(self, machine: str, now: float) -> Missing:
        """Why the ranks of a machine are missing whose agent is not connected, and whether that is evidence."""
        others = (disconnect for name, disconnect in self._disconnects.items() if name != machine)
        heartbeat_s, connected = self._settings.heartbeat_s, len(self._connected)
        missing = meaning(self._disconnects.get(machine), others, connected, heartbeat_s, now)
        return structs.replace(missing, message=f"the agent of {machine} {missing.message}")

    def findings(self, machine: str, now: float) -> tuple[Finding, ...]:
        """What the checks of a machine found, by the last word of its agent, and how old that is now."""
        here = self._connected.get(machine) or self._left.get(machine)
        return _findings_of(here, now) if here is not None else ()

    def send(self, machine: str, order: Command) -> bool:
        """Lays what an agent is to be told into a machine's line; False when it is not connected or reads nothing any more."""
        connection = self._connected.get(machine)
        if connection is None or connection.line.full():
            return False
        connection.line.put_nowait(order)
        return True

    def untestable(self, machine: str) -> str:
        """Why nothing can be tested on a machine now; empty when it can."""
        here = self._connected.get(machine)
        if here is None:
            return "its agent is not connected"
        return "" if here.diagnoses else f"its agent, version {here.version}, takes no orders to test it"

    def replays(self, machine: str) -> frozenset[str]:
        """The names of the programs that a connected machine's administrator allows to be replayed there."""
        here = self._connected.get(machine)
        return here.replays if here is not None else frozenset()

    def bodies(self) -> dict[str, Body]:
        """What every machine was by its agent's last Hello; of one that was never heard of nothing is known."""
        return dict(self._bodies)

    def free(self) -> frozenset[str]:
        """The connected machines that run no job."""
        return frozenset(machine for machine, connection in self._connected.items() if not connection.jobs)

    def jobs(self) -> tuple[str, ...]:
        """Every job that runs on a connected machine, by name."""
        if self._jobs is None:
            self._jobs = self._roster.labels()
        return self._jobs

    def jobs_of(self, machine: str) -> Mapping[str, AnnouncedJob]:
        """The jobs of a connected machine, by name."""
        here = self._connected.get(machine)
        return here.jobs if here is not None else {}

    def asked(self, job: str) -> dict[str, AnnouncedJob]:
        """The connected machines the job runs on, each with the ranks that are its own (`Claims.owned`)."""
        return dict(self._asked(job))

    def _asked(self, job: str) -> Mapping[str, AnnouncedJob]:
        running = self._running.get(job)
        if running is None:
            entry = self._roster.get(job)
            owned = entry.claims.owned() if entry is not None else {}
            running = {machine: self.placed(machine, local) for machine, local in owned.items()}
            if running:
                self._running[job] = running
        return running

    def owned(self, machine: str, job: str) -> tuple[Rank, ...]:
        """The ranks of a job that are a machine's own."""
        entry = self._roster.get(job)
        return entry.claims.own(machine) if entry is not None else ()

    def conflicts(self, job: str) -> tuple[str, ...]:
        """What the machines of a job contradict each other about, in words: then nothing acts by itself on it."""
        if job not in self._conflicts:
            entry = self._roster.get(job)
            self._conflicts[job] = entry.claims.conflicts() if entry is not None else ()
        return self._conflicts[job]

    def whose(self, job: str) -> tuple[str, Owner]:
        """A job's name and owner, as its machines know it."""
        entry = self._roster.get(job)
        return (entry.name, entry.owner) if entry is not None else (job, UNKNOWN)

    def payers(self, job: str) -> tuple[str, str]:
        """The user whose job it is, empty where that is not known, and the machine of its first rank: who answers for its captures."""
        ranks = {min(local.ranks): machine for machine, local in self.asked(job).items() if local.ranks}
        return self.whose(job)[1].user, ranks[min(ranks)] if ranks else ""

    def meant(self, machine: str, name: str, owner: Owner) -> str | None:
        """What the job is called of which a machine speaks; None when it runs none of that name and owner."""
        return self._roster.label(machine, name, owner)

    def called(self, machine: str, local: AnnouncedJob) -> str:
        """What a job is called that a machine recorded, whether or not it runs still."""
        return self._roster.called(machine, local)

    def awake(self, job: str, now: float) -> dict[str, AnnouncedJob]:
        """The connected machines the job runs on whose agents give signs of life: an open stream alone is none."""
        return {machine: local for machine, local in self.asked(job).items() if not self.mute_s(machine, now)}

    def mute(self, job: str, now: float) -> frozenset[str]:
        """The connected machines the job runs on whose agents give no sign of life."""
        connected = self._connected  # all machines of all jobs are gone over each second: most spoke just now
        quiet = (
            (machine, here)
            for machine in self._asked(job)
            if (here := connected.get(machine)) is not None and now - here.last_message > MISSED * here.pace_s
        )
        return frozenset(machine for machine, here in quiet if here.silent_s(now))

    def peer(self, machine: str) -> str:
        """Where a connected machine's agent calls from, in gRPC's words; empty when it is not connected."""
        here = self._connected.get(machine)
        return here.peer if here is not None else ""

    def mute_s(self, machine: str, now: float) -> float:
        """For how long a connected machine has said nothing, when that is longer than its signs of life are apart; else 0."""
        here = self._connected.get(machine)
        return here.silent_s(now) if here is not None else 0.0

    def absent(self, job: str, now: float) -> dict[str, AnnouncedJob]:
        """The machines the job ran on when they were lost, as far as no connected machine has taken their ranks."""
        self._forget(now)
        if not any(job in seen.jobs for seen in self._left.values()):
            return {}
        running = self.asked(job)
        worlds = {local.world_size for local in running.values()}
        taken = {rank for local in running.values() for rank in local.ranks}
        name, owner = self.whose(job)
        found: dict[str, AnnouncedJob] = {}
        for machine, seen in sorted(self._left.items()):
            local = seen.jobs.get(job)
            if local is None or (worlds and local.world_size not in worlds) or machine in running:
                continue  # of another size: an earlier run under the same name
            if not same_owner(owner, local.owner) or (running and local.job != name):
                continue  # another owner's job had this name before
            ranks = tuple(rank for rank in local.ranks if rank not in taken)
            if ranks:
                found[machine] = self.placed(machine, replace(local, ranks=ranks))
        return found

    def place(self, domains: Mapping[str, tuple[str, ...]]) -> None:
        """Notes what machines share with others."""
        self._domains |= domains
        self._running.clear()

    def placed(self, machine: str, local: AnnouncedJob) -> AnnouncedJob:
        """What a machine announces, with what is known of its place."""
        domains = self._domains.get(machine, ())
        return replace(local, domains=domains) if domains else local

    def machines(self, now: float) -> tuple[PastConnection, ...]:
        """All machines by name, the lost ones too."""
        self._forget(now)
        here = {
            c.machine: PastConnection(c.machine, c.version, c.last_message, c.jobs, True, c.findings)
            for c in self._connected.values()
        }
        return tuple(seen for _, seen in sorted((self._left | here).items()))

    def seen(self, now: float) -> tuple[tuple[Connection, ...], tuple[PastConnection, ...]]:
        """The machines whose agents are connected, and those that are lost; quick, for others may read them in a thread."""
        self._forget(now)
        left = tuple(seen for name, seen in self._left.items() if name not in self._connected)
        return tuple(self._connected.values()), left

    def machine(self, name: str) -> PastConnection | None:
        """One machine, lost or not; None of which nothing is known."""
        here = self._connected.get(name)
        if here is None:
            return self._left.get(name)
        return PastConnection(name, here.version, here.last_message, here.jobs, True, here.findings)

    def checked(self, connection: Connection, findings: tuple[Finding, ...]) -> None:
        """Notes what the checks of a machine found."""
        before, connection.findings = connection.findings, findings
        if [(one.code, one.what) for one in before] != [(one.code, one.what) for one in findings]:  # they only age
            self.changes += 1

    def counts(self, now: float) -> dict[str, int]:
        """How many machines there are whose agents are connected, connected and silent, lost, or stopped in order."""
        self._forget(now)
        silent = sum(connection.silent_s(now) > 0 for connection in self._connected.values())
        gone = [seen for name, seen in self._left.items() if name not in self._connected]
        stopped = sum(seen.stopped for seen in gone)
        connected = len(self._connected) - silent
        return {"connected": connected, "silent": silent, "lost": len(gone) - stopped, "stopped": stopped}

    def end(self, because: HangdogError) -> None:
        """Ends every stream."""
        for connection in self._connected.values():
            connection.end(because)

    def _changed(self, jobs: Iterable[str]) -> None:
        """Where these jobs run is put together anew; of thousands of machines one at a time begins or ends something."""
        self.changes += 1
        self._jobs = None
        for job in jobs:
            self._running.pop(job, None)
            self._conflicts.pop(job, None)

    def _forget(self, now: float) -> None:
        """Drops who left long ago; at most once in a while, for a whole cluster may leave at the same time."""
        if now - self._forgot < FORGET_S:
            return
        self._forgot = now
        for machine in [name for name, seen in self._left.items() if now - seen.last_message > self._settings.forget_s]:
            del self._left[machine]
            self.changes += 1
        for machine in [
            name for name, disconnect in self._disconnects.items() if now - disconnect.at > self._settings.forget_s
        ]:
            del self._disconnects[machine]
        there = self._connected.keys() | self._left.keys() | self._disconnects.keys()
        self._bodies = {machine: body for machine, body in self._bodies.items() if machine in there}
        self._domains = {machine: shared for machine, shared in self._domains.items() if machine in there}


def _findings_of(here: Connection | PastConnection, now: float) -> tuple[Finding, ...]:
    return aged(here.findings, now - here.last_message)  # the last word of an agent says what holds
