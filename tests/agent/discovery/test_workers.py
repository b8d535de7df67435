"""A real torch DataLoader: its workers are found with their roles, by name and, where torch gives none, by frames."""

import os

import pytest

from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.roles import kind
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, Thread
from support.fakes import targets
from support.fakes.targets import running

MARK = ("HANGDOG_TEST_WORKERS", str(os.getpid()))
#: Two workers hang in the dataset: one under the name torch gives it, the other under a name as older versions leave it.
LOADER = """
import os
from torch.utils.data import DataLoader, Dataset, get_worker_info
class Frozen(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if get_worker_info().id == 1:
            open("/proc/self/comm", "w").write("python")
        os.write(1, b"ready\\n")
        os.read(0, 1)
for batch in DataLoader(Frozen(), batch_size=1, num_workers=2, prefetch_factor=1):
    pass
"""


def test_the_workers_of_a_real_loader(tools: Tools) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'hangdog[demo]'")
    watch = Watch(ProcessTable(targets.proc, frozenset({MARK[0]})), MARK, (), forget_s=0.0)
    environ = dict([MARK], RANK="2", LOCAL_RANK="0", WORLD_SIZE="4", HANGDOG_JOB="workers")
    with running(LOADER, environ=environ) as target:
        assert target.stdout is not None
        assert target.stdout.readline() == b"ready\n"
        traces = CaptureSeries("workers", watch.see, tools).look()
        assert [(trace.rank, trace.role) for trace in traces] == [
            (2, "trainer"),
            (2, "dataloader-0"),
            (2, "dataloader-1"),
        ]
        comms = [trace.state.comm for trace in traces[1:] if trace.state]
        assert comms == ["pt_data_worker", "python"]
        assert any("_try_get_data" in frame.function for thread in traces[0].threads for frame in thread.frames)
        for trace in traces[1:]:
            assert any("__getitem__" in frame.function for thread in trace.threads for frame in thread.frames)


BOOTSTRAP = Frame("BaseProcess._bootstrap", "multiprocessing/process.py", 314)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["train.py", "multiprocessing/process.py", "torch/utils/data/_utils/worker.py"], ProcessRole.DATALOADER),
        (["train.py", "torch/distributed/checkpoint/_async_process_executor.py"], ProcessRole.CHECKPOINT),
        (["megatron/core/dist_checkpointing/strategies/filesystem_async.py"], ProcessRole.CHECKPOINT),
        (["torch/_inductor/compile_worker/subproc_pool.py"], ProcessRole.COMPILE),
        (
            ["torch/utils/data/_utils/worker.py", None, "mine.py"],
            ProcessRole.CHILD,
        ),  # forked by a loader's worker: a parent's frames
        (["mine.py"], ProcessRole.CHILD),
        ([], ProcessRole.CHILD),
    ],
)
def test_a_child_is_known_by_its_own_frames(files: list[str | None], expected: ProcessRole) -> None:
    frames = tuple(Frame("f", file) if file else BOOTSTRAP for file in files)
    with running(targets.WAIT) as target:
        member = RankProcesses("job", Rank(0), ProcessRole.CHILD, targets.row(target))
    assert kind(member, [Thread("MainThread", member.process.pid, frames)]) is expected
