"""Who is a trainer: process tables of every launcher, drawn as rows, and who must be found in them."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from hangdog_agent.discovery.announced import Announced
from hangdog_agent.discovery.discover import Process, ProcessRole, RankProcesses, find, is_python
from hangdog_agent.discovery.watch import jobs
from hangdog_models.ranks import Rank


def row(
    pid: int,
    parent: int,
    environ: Mapping[str, str] | None = None,
    line: str = "python train.py",
    comm: str = "python",
    state: str = "S",
) -> Process:
    """A process that started after those with a lower pid."""
    arguments = tuple(line.split())
    return Process(pid, parent, pid, state, comm, is_python(arguments[0], ()), arguments, environ or {}, cpu_ticks=0)


def rank(rank: int, world: int = 8, **more: str) -> dict[str, str]:
    """What torchrun puts into a trainer's environment."""
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank % 8), **more}


def told(members: tuple[RankProcesses, ...]) -> list[tuple[int, str, int]]:
    return [(member.rank, member.kind, member.process.pid) for member in members]


INIT = row(1, 0, line="/sbin/init")
TORCHRUN = row(10, 1, line="/venv/bin/python /venv/bin/torchrun --nproc-per-node=2 train.py")


def test_torchrun_and_its_ranks_with_their_workers() -> None:
    table = [
        INIT,
        TORCHRUN,
        row(11, 10, rank(0)),
        row(12, 10, rank(1)),
        row(13, 11, rank(0), comm="pt_data_worker"),
        row(14, 11, rank(0), line="python /torch/_inductor/compile_worker/__main__.py --workers=4"),
        row(15, 14, rank(0), line="python /torch/_inductor/compile_worker/__main__.py --workers=4"),
        row(16, 12, {}, line="sh -c nvidia-smi"),
        row(17, 1, {}, line="python unrelated.py"),
    ]
    assert told(find(table)) == [
        (0, ProcessRole.TRAINER, 11),
        (0, ProcessRole.DATALOADER, 13),
        (0, ProcessRole.COMPILE, 14),
        (0, ProcessRole.COMPILE, 15),
        (1, ProcessRole.TRAINER, 12),
        (1, ProcessRole.CHILD, 16),
    ]


@pytest.mark.parametrize(
    "launcher",
    [
        "/venv/bin/python /venv/bin/torchrun train.py",
        "python -m torch.distributed.run train.py",
        "python -X dev -u -m torch.distributed.launch train.py",
        "python /venv/bin/accelerate launch train.py",
        "python start.py",  # a launcher of one's own is told by what it starts
    ],
)
def test_a_pod_s_rank_counts_nodes_and_its_launcher_is_no_trainer(launcher: str) -> None:
    pod = {"RANK": "0", "WORLD_SIZE": "2"}
    table = [INIT, row(10, 1, pod, line=launcher), *(row(11 + local, 10, rank(local, 16)) for local in range(2))]
    assert told(find(table)) == [(0, ProcessRole.TRAINER, 11), (1, ProcessRole.TRAINER, 12)]


def test_one_rank_a_node_leaves_only_the_command_line_to_tell_the_launcher() -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2"}
    table = [INIT, row(10, 1, environ, line="python -m torch.distributed.run train.py"), row(11, 10, rank(1, 2))]
    assert told(find(table)) == [(1, ProcessRole.TRAINER, 11)]


def test_members_of_a_test_of_the_machine_are_no_job() -> None:
    replayed = [INIT, *(row(11 + number, 1, rank(number, HANGDOG_DIAGNOSIS="5a")) for number in range(2))]
    assert find(replayed) == ()
    told_elsewhere = Announced(Rank(0), 1, "llama")  # as the job's own program does, which is replayed
    assert find([INIT, replace(replayed[1], announced=told_elsewhere)]) == ()


def test_a_process_of_an_earlier_start_that_nobody_could_kill_does_not_stand_for_its_rank() -> None:
    """It is in uninterruptible sleep, say, and torchrun was started anew beside it."""
    left = Process(11, 1, 11, "D", "python", True, ("python", "train.py"), rank(0), cpu_ticks=9000)
    again = rank(0, TORCHELASTIC_RESTART_COUNT="1")
    new = Process(31, 30, 31, "S", "python", True, ("python", "train.py"), again, cpu_ticks=5)
    assert told(find([INIT, left, row(30, 1, line="python -m torch.distributed.run train.py"), new])) == [
        (0, ProcessRole.TRAINER, 31),
        (0, ProcessRole.CHILD, 11),
    ]


@pytest.mark.parametrize("started", ["/venv/bin/python /venv/bin/hangdog capture -o -", "python -m hangdog_agent.main"])
def test_an_agent_that_a_task_or_a_pod_of_ranks_runs_is_none_and_neither_are_its_helpers(started: str) -> None:
    inherited = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "7", "SLURM_JOB_ID": "77", "RANK": "0"}
    table = [
        INIT,
        row(10, 1, inherited, line=started),
        row(11, 10, inherited, line="/venv/bin/python -I -B -m hangdog_agent.checks.gpus.nvml_process"),
    ]
    assert find(table) == ()


def test_slurm_starts_launchers_or_ranks() -> None:
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77"}
    launched = [
        INIT,
        row(10, 1, slurm, line="python start.py"),
        row(11, 10, slurm | rank(8, 16)),
        row(12, 10, slurm | rank(9, 16)),
    ]
    assert told(find(launched)) == [(8, ProcessRole.TRAINER, 11), (9, ProcessRole.TRAINER, 12)]
    direct = [
        INIT,
        row(10, 1, slurm | {"SLURM_PROCID": "3"}),
        row(11, 10, slurm | {"SLURM_PROCID": "3"}, comm="pt_data_worker"),
    ]
    assert told(find(direct)) == [(3, ProcessRole.TRAINER, 10), (3, ProcessRole.DATALOADER, 11)]
    assert find(direct)[0].job == "77"


def tf_config(kind: str, index: int, **tasks: int) -> str:
    """TF_CONFIG of one task of a cluster with so many tasks of each kind."""
    cluster = {name: [f"node-{number}:2222" for number in range(count)] for name, count in tasks.items()}
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def test_a_batch_script_is_no_task_of_its_own_job() -> None:
    """It has the number of task 0, as seen on Slurm 22.05; alone in its job, it is all there is of it."""
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "77"}
    monitor = row(10, 1, batch, line="python watch_the_log.py")
    assert find([INIT, monitor]) == ()
    step = row(20, 1, batch | {"SLURM_STEP_ID": "0"})
    assert told(find([INIT, monitor, step])) == [(0, ProcessRole.TRAINER, 20)]
    assert find([INIT, row(10, 1, {"SLURM_PROCID": "0", "SLURM_JOB_ID": "77"})]) == ()
    assert told(find([INIT, row(10, 1, batch | {"SLURM_NTASKS": "1"})])) == [(0, ProcessRole.TRAINER, 10)]


def test_a_trainer_that_sets_rank_itself_is_not_its_own_child_s_launcher() -> None:
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"}
    table = [INIT, row(10, 1, slurm), row(11, 10, slurm | rank(3, 8), line="python -c spawn_main")]
    assert told(find(table)) == [(3, ProcessRole.TRAINER, 10), (3, ProcessRole.CHILD, 11)]


@pytest.mark.parametrize(
    ("environ", "expected", "world"),
    [
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"}, 5, 8),
        ({"PMI_RANK": "5", "PMI_SIZE": "8"}, 5, 8),
        ({"PMIX_RANK": "5"}, 5, 0),
        ({"PMIX_RANK": "5", "SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, 5, 8),  # srun --mpi=pmix
        ({"PMIX_RANK": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, 1, 0),  # mpirun in a job of Slurm's
        ({"MV2_COMM_WORLD_RANK": "5", "MV2_COMM_WORLD_SIZE": "8"}, 5, 8),
        ({"MVP_COMM_WORLD_RANK": "5", "MVP_COMM_WORLD_SIZE": "8"}, 5, 8),
        ({"JSM_NAMESPACE_RANK": "5", "JSM_NAMESPACE_SIZE": "8"}, 5, 8),
        ({"FLUX_TASK_RANK": "5", "FLUX_JOB_SIZE": "8"}, 5, 8),
        ({"PALS_RANKID": "5", "PMI_RANK": "5", "PMI_SIZE": "8"}, 5, 8),
        ({"JAX_PROCESS_ID": "5", "JAX_NUM_PROCESSES": "8"}, 5, 8),
        ({"PADDLE_TRAINER_ID": "5", "PADDLE_TRAINERS_NUM": "8"}, 5, 8),
        ({"HOROVOD_RANK": "5", "HOROVOD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "1"}, 5, 8),
        ({"RANK_ID": "5", "RANK_SIZE": "8"}, 5, 8),
        ({"TF_CONFIG": tf_config("worker", 5, worker=8)}, 5, 8),
        ({"TF_CONFIG": tf_config("worker", 1, chief=1, worker=3, ps=2)}, 2, 4),
        ({"TF_CONFIG": tf_config("chief", 0, chief=1, worker=3)}, 0, 4),
        ({"RANK": "5", "WORLD_SIZE": "x"}, 5, 0),
        ({"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, 5, 8),
    ],
)
def test_a_rank_in_any_launcher_s_words(environ: dict[str, str], expected: int, world: int) -> None:
    (member,) = find([INIT, row(10, 1, environ)])
    assert (member.rank, member.world_size) == (expected, world)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 9999,
        '{"task": {"type": "worker", "index": true}, "cluster": {"worker": ["a:1", "b:1"]}}',
        '{"cluster": 3}',
    ],
)
def test_a_configuration_of_tensorflow_that_names_no_worker(text: str) -> None:
    assert find([INIT, row(10, 1, {"TF_CONFIG": text})]) == ()


def test_a_parameter_server_or_a_worker_beyond_the_cluster_is_no_rank() -> None:
    for text in (
        tf_config("ps", 0, worker=2, ps=1),
        tf_config("evaluator", 0, worker=2),
        tf_config("worker", 2, worker=2),
    ):
        assert find([INIT, row(10, 1, {"TF_CONFIG": text})]) == ()


def test_a_name_that_others_use_too_is_a_rank_only_beside_the_number_of_ranks() -> None:
    assert find([INIT, row(10, 1, {"RANK_ID": "5"})]) == ()


@pytest.mark.parametrize("text", ["", "-1", "x", "1.5", "\uff19", "99999999999999999999", "1048577"])
def test_a_rank_that_is_none(text: str) -> None:
    assert find([INIT, row(10, 1, {"RANK": text, "WORLD_SIZE": "8"})]) == ()


def test_a_shell_around_every_rank_is_no_trainer() -> None:
    table = [INIT, TORCHRUN, row(11, 10, rank(0), line="bash run.sh"), row(12, 11, rank(0)), row(13, 12, rank(0))]
    assert told(find(table)) == [(0, ProcessRole.TRAINER, 12), (0, ProcessRole.CHILD, 13)]


@pytest.mark.parametrize(
    ("executable", "line", "python"),
    [
        ("/usr/bin/python3.11", "ray::train", True),
        ("", "/opt/venv/bin/python3 train.py", True),
        ("/usr/bin/python3.13t (deleted)", "", True),
        ("/usr/bin/bash", "python-launcher.sh", False),
        ("/usr/bin/bash", "bash python", False),
        ("", "", False),
    ],
)
def test_python_is_told_by_program_or_command_line(executable: str, line: str, python: bool) -> None:
    assert is_python(executable, line.split()) is python


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({"HANGDOG_JOB": "mine", "TORCHELASTIC_RUN_ID": "r", "SLURM_JOB_ID": "7"}, "mine"),
        ({"TORCHELASTIC_RUN_ID": "r", "SLURM_JOB_ID": "7"}, "r"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7"}, "7"),
        ({"TORCHELASTIC_RUN_ID": "none"}, "default"),
        ({"HANGDOG_JOB": "x" * 1000}, "x" * 200),
    ],
)
def test_the_name_of_a_job(environ: dict[str, str], job: str) -> None:
    (member,) = find([INIT, row(10, 1, rank(0) | environ)])
    assert member.job == job


def test_topology_comes_along() -> None:
    (member,) = find([INIT, row(10, 1, rank(0, HANGDOG_TOPOLOGY="tp=2,pp=4"))])
    assert member.topology == "tp=2,pp=4"


def test_two_that_claim_a_rank_are_a_trainer_and_a_child() -> None:
    table = [INIT, row(10, 1, rank(0), state="Z"), row(11, 1, rank(0)), row(12, 10, rank(0), comm="pt_data_worker")]
    assert told(find(table)) == [
        (0, ProcessRole.TRAINER, 11),
        (0, ProcessRole.CHILD, 10),
        (0, ProcessRole.DATALOADER, 12),
    ]


def test_workers_that_lost_their_trainer_do_not_stand_for_the_rank() -> None:
    table = [INIT, row(11, 1, rank(0), comm="pt_data_worker"), row(12, 1, rank(0), comm="pt_data_worker")]
    assert told(find(table)) == [(0, ProcessRole.DATALOADER, 11), (0, ProcessRole.DATALOADER, 12)]
    assert told(find([*table, row(20, 1, rank(0))]))[0] == (0, ProcessRole.TRAINER, 20)


def test_only_matching_trainers_with_all_their_children() -> None:
    table = [INIT, row(10, 1, rank(0, MACHINE="a")), row(11, 1, rank(1, MACHINE="b")), row(12, 10, {}), row(13, 11, {})]
    assert told(find(table, match=("MACHINE", "b"))) == [(1, ProcessRole.TRAINER, 11), (1, ProcessRole.CHILD, 13)]


def test_the_agent_itself_is_no_trainer() -> None:
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}
    assert find([INIT, row(10, 1, slurm)], without=(10,)) == ()
    assert find([INIT, row(10, 1, slurm, line="python /venv/bin/hangdog-agent --server x:1")]) == ()
    assert find([INIT, row(10, 1, slurm, line="python -m hangdog agent")]) == ()


def test_a_table_with_a_circle_or_a_missing_parent_is_read_all_the_same() -> None:
    table = [row(10, 11, rank(0)), row(11, 10), row(12, 99, rank(1)), row(13, 13, rank(2))]
    assert {member.rank for member in find(table) if member.kind is ProcessRole.TRAINER} == {0, 1, 2}


def test_the_order_of_the_rows_does_not_matter() -> None:
    table = [
        INIT,
        TORCHRUN,
        row(11, 10, rank(0)),
        row(12, 10, rank(1)),
        row(13, 11, rank(0), comm="pt_data_worker"),
        row(14, 11),
    ]
    assert find(table) == find(table[::-1])


def copied(local: int, world: int = 4, node: int = 0) -> dict[str, str]:
    """What Lightning gives the copies of a program that it starts itself: no RANK."""
    return {"LOCAL_RANK": str(local), "NODE_RANK": str(node), "WORLD_SIZE": str(world), "MASTER_ADDR": "10.0.0.1"}


def test_a_program_that_starts_its_ranks_itself_is_the_first_of_them() -> None:
    table = [
        INIT,
        row(20, 1, {}),
        row(21, 20, copied(1)),
        row(22, 20, copied(2)),
        row(23, 20, copied(3)),
        row(24, 20, {}, comm="pt_data_worker"),
        row(25, 21, copied(1), comm="pt_data_worker"),
    ]
    found = find(table)
    assert told(found) == [
        (0, ProcessRole.TRAINER, 20),
        (0, ProcessRole.DATALOADER, 24),
        (1, ProcessRole.TRAINER, 21),
        (1, ProcessRole.DATALOADER, 25),
        (2, ProcessRole.TRAINER, 22),
        (3, ProcessRole.TRAINER, 23),
    ]
    assert {(member.world_size, member.rendezvous, member.key) for member in found} == {(4, "10.0.0.1", found[0].key)}


def test_on_the_second_machine_its_ranks_go_on() -> None:
    table = [INIT, row(20, 1, {}), row(21, 20, copied(1, node=1))]
    assert told(find(table)) == [(2, ProcessRole.TRAINER, 20), (3, ProcessRole.TRAINER, 21)]


@pytest.mark.parametrize(
    "below",
    [
        [row(22, 20, copied(2))],  # not all copies are there yet
        [row(21, 20, copied(1)), row(22, 20, copied(1))],  # two are one
        [row(21, 20, copied(1, world=3))],  # a job of three on machines of two
        [row(21, 20, copied(1, node=2))],  # more machines than the job has
        [row(21, 20, copied(1)), row(22, 20, copied(2, world=8))],
        [row(21, 20, {"LOCAL_RANK": "1"})],
    ],
)
def test_what_does_not_go_together_gives_no_ranks(below: list[Process]) -> None:
    assert find([INIT, row(20, 1, {}), *below]) == ()


def test_who_was_given_a_rank_by_a_launcher_keeps_it() -> None:
    """A loader of a rank that torchrun started, in a process of its own, has all that its trainer has."""
    table = [INIT, TORCHRUN, row(11, 10, rank(0)), row(12, 11, {**rank(0), **copied(1)})]
    assert told(find(table)) == [(0, ProcessRole.TRAINER, 11), (0, ProcessRole.CHILD, 12)]


@pytest.mark.parametrize(
    ("addresses", "kinds", "switch"),
    [
        (["s2.s0.tux3", "s2.s0.tux3"], "switch.switch.node", "s0"),
        (["b1.tux3"], "block.node", "b1"),
        (["tux3"], "node", ""),
        (["s0.tux3"], "switch.switch.node", ""),
        (["s2.s0.tux3", "s2.s1.tux3"], "switch.switch.node", ""),
        ([""], "", ""),
    ],
)
def test_the_switch_above_a_machine_is_as_slurm_tells_it(addresses: list[str], kinds: str, switch: str) -> None:
    table = [
        row(11 + at, 1, rank(at, SLURM_TOPOLOGY_ADDR=address, SLURM_TOPOLOGY_ADDR_PATTERN=kinds))
        for at, address in enumerate(addresses)
    ]
    assert jobs(find([INIT, *table]))[0].switch == switch
