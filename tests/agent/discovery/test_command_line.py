"""What a trainer's command line tells of its rank and of the job's parallel sizes, as frameworks have people write them."""

import re
from pathlib import Path

import pytest

from hangdog_agent.discovery.command_line import SILENT, CommandLine, read
from hangdog_agent.discovery.discover import find
from hangdog_agent.discovery.parallel_sizes import topology
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import LocalJob, jobs
from support.fakes.targets import WAIT, proc, running

#: More than are kept of a command line, as Megatron's are.
MANY = [f"--option-{number}" for number in range(200)]


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2", {"tp": 4, "pp": 2}),
        ("pretrain_gpt.py --context-parallel-size=2 --expert-model-parallel-size=8", {"cp": 2, "ep": 8}),
        ("train.py --parallelism.tensor_parallel_degree=2 --parallelism.pipeline_parallel_degree 4", {"tp": 2, "pp": 4}),
        ("megatron_gpt_pretraining.py model.tensor_model_parallel_size=8 ++model.pipeline_model_parallel_size=1", {"tp": 8, "pp": 1}),
        ("train.py --deepspeed --pipe-parallel-size 2 --model-parallel-size 2", {"pp": 2, "tp": 2}),
        ("pretrain_gpt.py --tensor-model-parallel-size 4 --use-tp-pp-dp-mapping", {}),
        ("train.py --tensor-model-parallel-size -1 --tp-size two --pp-size", {}),
        ("ppo.py actor.tp_size=2 rollout.tensor_parallel_size=8 ++critic.megatron.tp_size=4", {"tp": 2}),
        ("ppo.py --rollout-vllm.tp-size 8", {}),
        ("train.py --tp-size 0 --tp-size=99999999999999999999", {}),
    ],
)  # fmt: skip
def test_parallel_sizes(line: str, sizes: dict[str, int]) -> None:
    assert dict(read(["python", *line.split()]).sizes) == sizes


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("train.py --process_id=3 --num_processes=8 --coordinator_address=10.0.0.1:1234", 3),
        ("train.py --rank 3 --world-size 8 --dist-url tcp://10.0.0.1:1234", 3),
        ("train.py --rank 16 --lora-alpha 32", None),
        ("prepare.py --process_id=3 --num_processes=8", None),
        ("train.py --rank 8 --world-size 8 --dist-url tcp://10.0.0.1:1234", None),
        ("train.py --rank \uff13 --world-size 8 --dist-url tcp://10.0.0.1:1234", None),
    ],
)
def test_a_rank_is_believed_only_with_the_size_of_the_world_and_the_place_to_meet(line: str, rank: int | None) -> None:
    assert read(["python", *line.split()]).rank == rank


def test_nonsense_says_nothing_and_costs_little() -> None:
    assert read([]) == read(["python"]) == read(["python", *["=" * 1000, "--", "--=", "--x"] * 100_000]) == SILENT


def said(**sizes: int) -> CommandLine:
    return CommandLine(sizes=sizes, given=("--tensor-model-parallel-size",))


@pytest.mark.parametrize(
    ("announced", "lines", "world", "text", "note"),
    [
        ("", [said(tp=2, pp=2)] * 2, 16, "tp=2,dp=4,pp=2", r"command line \(--tensor-model-parallel-size\)"),
        ("", [said(tp=2, ep=4)], 16, "tp=2,ep=4,dp=8", ""),
        ("", [said(tp=1, pp=1)], 4, "dp=4", ""),
        ("", [said(tp=3)], 16, "", r"tp=3 \(--tensor-model-parallel-size\), .*not fit 16 ranks"),
        ("", [said(tp=2)], 0, "", "ranks .*not known"),
        ("", [said(tp=2), said(tp=4)], 16, "", "contradict each other"),
        ("tp=4,dp=4", [said(tp=2)], 16, "tp=4,dp=4", "HANGDOG_TOPOLOGY=tp=4,dp=4 .*believed, .*command line says tp=2"),
        ("tp=2,dp=8", [said(tp=2, pp=1)], 16, "tp=2,dp=8", None),
        ("", [read(["python", "x", "--tp-size", "2", "--tp-degree", "4"])], 16, "", "gives tp twice"),
        ("", [SILENT], 16, "", None),
    ],
)  # fmt: skip
def test_sizes_become_a_topology_and_what_contradicts_is_said(
    announced: str, lines: list[CommandLine], world: int, text: str, note: str | None
) -> None:
    found, notes = topology(announced, lines, world)
    assert found == text
    assert (not notes) if note is None else re.search(note, notes[0])


def here(tmp_path: Path, line: list[str], **environ: str) -> LocalJob:
    """The job of one real process, as it is announced."""
    mark = ("TEST_OF", str(tmp_path))
    with running(WAIT, *line, environ={"RANK": "", "HANGDOG_JOB": "", **dict([mark]), **environ}):
        (job,) = jobs(find(ProcessTable(proc, frozenset({mark[0]})).take(), mark))
        return job


def test_a_process_is_found_by_its_command_line_alone(tmp_path: Path) -> None:
    job = here(tmp_path, ["--process_id=3", "--num_processes=8", "--coordinator_address=10.0.0.1:1234"])
    assert (job.ranks, job.world_size, job.sources, job.notes) == ((3,), 8, ("--process_id",), ())


def test_sizes_stand_anywhere_on_a_long_command_line(tmp_path: Path) -> None:
    line = [*MANY, "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"]
    job = here(tmp_path, line, RANK="3", WORLD_SIZE="8")
    assert (job.topology, job.sources) == ("tp=2,dp=2,pp=2", ("RANK",))
    (note,) = job.notes
    assert note.endswith("command line (--tensor_model_parallel_size, --pipeline_model_parallel_size)")


def test_a_rank_in_the_environment_is_believed_more(tmp_path: Path) -> None:
    line = ["--process_id=3", "--num_processes=8", "--coordinator_address=10.0.0.1:1234"]
    assert here(tmp_path, line, RANK="5", WORLD_SIZE="8").ranks == (5,)
