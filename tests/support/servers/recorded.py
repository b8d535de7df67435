"""Real jobs that hung and were recorded, in the corpus beside the repository: judged here, or shown to a server by its agents."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models import topology
from hangdog_models.diagnosis.judge import investigate
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import DEFAULTS
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_proto.codec import collectives
from hangdog_proto.codec.collectives import Statement, StatementKind
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from support.servers.cast import Agent, Stage

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "corpus" / "gloo"
#: Why a test of them is left out.
NO_CORPUS = "no corpus beside the repository (../shared/corpus)"


@dataclass(frozen=True)
class Recorded:
    """A recorded job: its folder in the corpus, and the guilty rank by its ground truth."""

    folder: str
    guilty: int

    @property
    def path(self) -> Path:
        return CORPUS / self.folder

    def opened(self) -> tuple[Snapshot, Topology]:
        """What was seen of the job, and its shape."""
        snapshot, layout = open_bundle(self.path, DEFAULTS, None)
        shape, _ = topology.build(layout, snapshot.highest_rank())
        return snapshot, shape

    def case(self) -> Case:
        """What `hangdog triage` judges."""
        return investigate(*self.opened())

    def copied(self, folder: Path) -> Path:
        """The bundle as somebody is handed it: without the corpus's own word on it."""
        return Path(shutil.copytree(self.path, folder, ignore=shutil.ignore_patterns("expected.toml")))

    def record(self, rank: Rank) -> bytes:
        """The flight record of a rank, as its library wrote it; empty where there is none."""
        return b"".join(path.read_bytes() for path in self.path.glob(f"fr/rank{rank}.*"))


#: One screen of each is a picture of the documentation, by this name.
RECORDED = {
    "data-loader": Recorded("dataloader-py", 1),
    "storage": Recorded("checkpoint_dstate-py", 0),
    "lock": Recorded("native_deadlock", 1),
}


@dataclass
class Played:
    """A recorded job whose machines' agents are connected to a server."""

    recorded: Recorded
    snapshot: Snapshot
    shape: Topology
    agents: list[Agent]

    async def answer(self) -> None:
        """Has every agent answer its next order with what was recorded of its ranks."""
        await asyncio.gather(*map(self._answer, self.agents))

    async def _answer(self, agent: Agent) -> None:
        order, ranks = await agent.order(), self.shape.machines[agent.machine]
        for number, look in enumerate(self.snapshot.rounds):
            capture = pack(trace for trace in look.traces if trace.rank in ranks)
            last = number == len(self.snapshot.rounds) - 1
            if last:
                capture.statements.extend(self._statements(ranks))
            await agent.say(captured=pb.Captured(order=order.order, round=number, capture=capture, last=last))

    def _statements(self, ranks: Iterable[Rank]) -> list[pb.Statement]:
        records = ((rank, self.recorded.record(rank)) for rank in ranks)
        return [collectives.pack(Statement(StatementKind.RECORD, rank, data)) for rank, data in records if data]


@asynccontextmanager
async def played(on: Stage, recorded: Recorded) -> AsyncIterator[Played]:
    """The job as it runs on machines that the server knows."""
    snapshot, shape = recorded.opened()
    async with AsyncExitStack() as cast:
        agents = [await cast.enter_async_context(on.agent(machine)) for machine in shape.machines]
        for agent in agents:
            await agent.hello(**{snapshot.job.id: shape.machines[agent.machine]})
        await on.knows(*shape.machines)
        yield Played(recorded, snapshot, shape, agents)
