"""Faults of what many machines share: storage, a data service, the name service, the store, licences, trackers."""

from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position, asleep, working
from worlds.timed.engine.steps import Die, Program, Run
from worlds.timed.jobs.job import Job
from worlds.timed.programs.phases import barrier
from worlds.timed.scenarios.scenario import Scenario
from worlds.timed.scenarios.stuck import Stuck, in_loader, in_storage, point_of, storage_call


class SharedStorage(Stuck):
    """The storage of all machines hangs: most ranks are stuck in it, and the others wait for them in a barrier."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        share = rng.choice((0.7, 0.9, 1.0))
        reads = job.loads_data and (job.name in ("transformers", "lightning") or rng.random() < 0.4)
        point = "data" if reads else "after"
        place = in_loader(job) if reads else in_storage(job.places["checkpoint_write"], storage_call(rng))
        super().__init__(kind, job, rng, (), point, place, 0.3 if reads else 3.0)
        of = [rank for rank in job.layout.ranks if not reads or job.has_loader(rank)]
        self.affected = frozenset(rank for rank in of if job.rng(rank, "storage").random() < share) or frozenset(of)

    def at(self, rank: Rank, point: str, step: int) -> Program:
        yield from super().at(rank, point, step)
        if point == self.point == "after" and step == self.step:
            places = self.job.places
            seconds = self.job.rng(rank, "writes").uniform(2, 9)
            yield Run(seconds, Position(places["checkpoint_write"], "file_write", cpu=0.5))
            yield from barrier(self.job, places["checkpoint_plan"])


class DeadStore(Scenario):
    """Rank 0 dies as it starts, and the store with it, to which all others connect."""

    starts_up = True

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        self.ranks = [Rank(0)]

    def at(self, rank: Rank, point: str, step: int) -> Program:
        if rank == 0 and point == "init":
            yield Run(3, working(self.job.places["init"]))
            self.begin()
            yield Die(working(self.job.places["init"]))


def no_data(kind: str, job: Job, rng: Random) -> Stuck:
    """A service that all ranks take their batches from answers nobody."""
    fetches = f"{job.places['step']} fetch_batch@code/acme/datasvc/client.py@88"
    grpc = rng.random() < 0.5
    at = asleep(f"{fetches} {job.places['grpc' if grpc else 'request']}", "lock" if grpc else "tls_read", 0.004)
    stuck = Stuck(kind, job, rng, (), "data", lambda rank: at, 0.4)
    hit = frozenset(rank for rank in job.layout.ranks if job.rng(rank, "service").random() < 0.85)
    stuck.affected = hit or frozenset((Rank(0),))
    return stuck


def no_names(kind: str, job: Job, rng: Random) -> Stuck:
    """The name service does not answer, at the start or in the middle."""
    early = rng.random() < 0.5
    starts = "main@code/bootstrap.py@29 resolve_tokenizer@code/bootstrap.py@57"
    base = (
        f"{job.places['setup']} {starts}"
        if early
        else f"{job.places['step']} fetch_batch@code/acme/datasvc/client.py@88"
    )
    at = asleep(f"{base} {job.places['resolve']}", "name_lookup", 0.002)
    stuck = Stuck(kind, job, rng, (), "init" if early else "data", lambda rank: at)
    hit = frozenset(rank for rank in job.layout.ranks if job.rng(rank, "names").random() < 0.9)
    stuck.affected = hit or frozenset((Rank(0),))
    return stuck


def no_answer(kind: str, job: Job, rng: Random) -> Stuck:
    """One rank waits for a service that it alone asks: a licence server, a tracker, a tokeniser."""
    places, one = job.places, job.layout.ranks[0]
    match kind:
        case "licence":
            point = rng.choice(("init", "after"))
            base = f"{places['setup']} main@code/bootstrap.py@29" if point == "init" else places["train"]
            asks = f"{base} checkout_seat@code/acme/licensing/seat.py@44"
        case "tracker":
            point, asks = (
                "log",
                f"{places['log']} Run.log@site/acme_metrics/client.py@77 _post@site/acme_metrics/http.py@31",
            )
        case _:
            point, one = point_of(job, rng), rng.choice(job.layout.ranks)
            asks = f"{places.point(point)} encode_remote@code/data/tok_client.py@53"
    if kind == "tracker" and job.name == "megatron":
        one = job.layout.ranks[-1]
    at = asleep(f"{asks} {places['request']}", "tls_read", 0.002)
    return Stuck(kind, job, rng, [one], point, lambda rank: at)
