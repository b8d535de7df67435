"""Parallel sizes in configuration files: what is read of them, and that nobody has the agent open what its user may not."""

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdog_agent.config_files import ConfigFiles
from hangdog_agent.discovery import command_line, config_sizes
from hangdog_agent.discovery.config_sizes import BYTES, ConfigSizes
from hangdog_agent.discovery.parallel_sizes import topology
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import LocalJob, Watch, jobs
from hangdog_agent.procfs import Proc
from support.fakes.targets import WAIT, running

#: In the style of deepspeed.ai/docs/config-json (0.19), with AutoTP.
DEEPSPEED = json.dumps(
    {
        "train_batch_size": 32,
        "zero_optimization": {"stage": 1, "reduce_bucket_size": 500_000_000},
        "tensor_parallel": {"autotp_size": 4},
        "pipeline": {"stages": 2, "seed_layers": True},
    }
)
#: In the style of pytorch/torchtitan, torchtitan/models/llama3/train_configs (2025).
TITAN = """
[job]
dump_folder = "./outputs"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
pipeline_parallel_degree = 2
context_parallel_degree = 1
"""
#: In the style of Megatron-LM's `--yaml-cfg` (examples/gpt3) and of what `accelerate config` writes.
MEGATRON = """
language_model:
  # sizes of the model
  num_layers: 24
model_parallel:
  tensor_model_parallel_size: 2 # of each layer
  pipeline_model_parallel_size: "4"
  sequence_parallel: true
"""
ACCELERATE = "megatron_lm_config:\n  megatron_lm_tp_degree: 2\n  megatron_lm_pp_degree: 2\nnum_processes: 8\n"
#: Of `LightningCLI`: the strategy's arguments.
LIGHTNING = (
    "trainer:\n  strategy:\n    class_path: ModelParallelStrategy\n    init_args:\n      tensor_parallel_size: 2\n"
)


@pytest.mark.parametrize(
    ("name", "text", "sizes"),
    [
        ("ds.json", DEEPSPEED, {"tp": 4, "pp": 2}),
        ("titan.toml", TITAN, {"tp": 8, "pp": 2, "cp": 1}),
        ("megatron.yaml", MEGATRON, {"tp": 2, "pp": 4}),
        ("accelerate.yml", ACCELERATE, {"tp": 2, "pp": 2}),
        ("lightning.yaml", LIGHTNING, {"tp": 2}),
        ("ppo.yaml", "actor:\n  tp_size: 2\nrollout:\n  vllm:\n    tp_size: 8\ncritic:\n  tp_size: 4\n", {"tp": 2}),
        (
            "nanotron.yaml",
            "parallelism:\n  dp: 4\n  pp: 2\n  tp: 2\n  pp_engine: 1f1b\nmodel:\n  tp: 9\n",
            {"tp": 2, "pp": 2},
        ),
        ("nemo.yaml", "defaults:\n  - model: 7b\n  - _self_\nmodel:\n  tensor_model_parallel_size: 4\n", {"tp": 4}),
        ("auto.json", '{"tensor_parallel": {"autotp_size": "auto"}, "tp_size": true, "pp_size": 0}', {}),
        ("list.json", "[1, 2, 3]", {}),
    ],
)
def test_what_is_read(name: str, text: str, sizes: dict[str, int]) -> None:
    found = config_sizes.read(f"/data/run/{name}", text.encode())
    assert (found.name, dict(found.sizes), found.contradicted, found.problem) == (name, sizes, (), "")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("ds.json", b"{"),
        ("ds.json", b"[" * 50_000),
        ("titan.toml", b"= 3"),
        ("ds.json", b" " * (BYTES + 1)),
        ("a.toml", b"\xff\x00"),
        (
            "nemo.yaml",
            b"defaults:\n  - _self_\n  # as tried\n\n  - model: 7b\nmodel:\n  tensor_model_parallel_size: 4\n",
        ),
        ("nemo.yaml", b"model:\n  tensor_model_parallel_size: 4\n  use_tp_pp_dp_mapping: True\n"),
        ("m.json", b'{"tp_size": 4, "use_tp_pp_dp_mapping": true}'),
    ],
)
def test_what_cannot_be_read_is_said(name: str, data: bytes) -> None:
    assert config_sizes.read(name, data).problem


def test_hostile_files_cost_little_and_tell_nothing() -> None:
    deep = json.dumps({"a": 1}).replace("1", '{"a": ' * 400 + "1" + "}" * 400)
    for name, text in (
        ("deep.json", deep),
        ("long.yaml", "tp_size: 1\n" * 6000),
        ("slow.yaml", f"{' ' * 30_000}x: {'9' * 30_000}"),
        ("huge.json", '{"tp_size": ' + "9" * 4000 + "}"),
        ("composed.yaml", "- _self_\n" + " #\n" * 15_000),
        ("selves.yaml", "  - _self_\n\n" * 4_000),
        ("blank.yaml", "- _self_\n" + " " * 60_000),
    ):
        began = time.thread_time()
        found = config_sizes.read(name, text.encode())
        assert time.thread_time() - began < 1.0 and all(size <= 1 for size in found.sizes.values())
    assert config_sizes.read("x.yaml", b"a:\n  tp_size: 2\nb:\n  tp_size: 4\n").contradicted == ("tp",)


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("python train.py --deepspeed ds.json", ("ds.json",)),
        ("python train.py --deepspeed_config=/x/ds.json --lr 3", ("/x/ds.json",)),
        ("python -m torchtitan.train --job.config_file llama.toml", ("llama.toml",)),
        ("python pretrain.py --yaml-cfg gpt.yaml", ("gpt.yaml",)),
        ("python cli.py fit --config a.yaml --config b.yaml --config c.yaml", ("a.yaml", "b.yaml")),
        ("python train.py --deepspeed --config /etc/shadow", ()),
        ("python train.py --data x.json", ()),
        ("python gpt.py --config-path=/results --config-name=run.yaml model.lr=1", ("/results/run.yaml",)),
        ("python examples/gpt.py --config-name 7b --config-path ../conf", ("examples/../conf/7b.yaml",)),
        ("python gpt.py -cn 7b -cp conf", ("conf/7b.yaml",)),
        ("python -u gpt.py -cn 7b -cp conf", ("conf/7b.yaml",)),
        ("python gpt.py --config-name 7b", ()),
        ("python -m nemo.gpt --config-path conf --config-name 7b", ()),
        ("python -m nemo.gpt --config-path /conf --config-name 7b", ("/conf/7b.yaml",)),
        ("python gpt.py --config-path pkg://nemo.conf --config-name 7b", ()),
        ("server --config-path /config/contour.yaml", ()),
    ],
)
def test_which_files_a_command_line_names(line: str, paths: tuple[str, ...]) -> None:
    assert command_line.read(line.split()).configs == paths


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        (
            "python nlp/gpt.py --config-name 7b model.lr=1",
            ("nlp/conf/7b.yaml", "nlp/config/7b.yaml", "nlp/configs/7b.yaml", "nlp/7b.yaml"),
        ),
        ("python gpt.py -cn=7b.yaml", ("conf/7b.yaml", "config/7b.yaml", "configs/7b.yaml", "7b.yaml")),
        ("python gpt.py --config-path conf --config-name 7b", ()),
        ("python -m nemo.gpt --config-name 7b", ()),
        ("python gpt.py --config-name", ()),
    ],
)
def test_where_a_file_may_be_of_which_only_the_name_is_given(line: str, paths: tuple[str, ...]) -> None:
    assert command_line.read(line.split()).candidates == paths


DS = ConfigSizes("ds.json", {"tp": 4, "pp": 2}, ("autotp_size", "stages"))


@pytest.mark.parametrize(
    ("announced", "line", "files", "world", "found", "note"),
    [
        ("", "", (DS,), 16, "tp=4,dp=2,pp=2", "tp=4,dp=2,pp=2, .*configuration file ds.json"),
        ("", "--tp-size 2", (DS,), 16, "tp=2,dp=4,pp=2", "ds.json says tp=4, .*command line tp=2, .*believed"),
        ("tp=2,dp=8", "", (DS,), 16, "tp=2,dp=8", "believed, .*ds.json says tp=4,pp=2"),
        ("", "", (DS,), 12, "", "not fit 12 ranks: not used"),
        ("", "", (ConfigSizes("x.yaml", problem="why"),), 8, "", "x.yaml .*not used: why"),
        ("", "", (ConfigSizes("x.yaml", {"tp": 2}, ("tp_size",), ("tp",)),), 8, "", "x.yaml gives tp twice"),
    ],
)  # fmt: skip
def test_where_sizes_come_from_and_what_contradicts(
    announced: str, line: str, files: tuple[ConfigSizes, ...], world: int, found: str, note: str
) -> None:
    text, notes = topology(announced, [command_line.read(["python", "train.py", *line.split()])], world, files)
    assert text == found and any(re.search(note, one) for one in notes), notes


MARK = ("HANGDOG_TEST_OF_CONFIGS", str(os.getpid()))


#: A user without rights.
NOBODY = 65534


@contextmanager
def trainer(folder: Path, path: str, uid: int = 0) -> Iterator[None]:
    """A rank in that folder whose command line names a file; `uid`: it becomes another user's."""
    environ = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "16", "HANGDOG_JOB": "configured", MARK[0]: MARK[1]}
    # dumpable, as a program is that was started by its user
    become = (
        f"import ctypes\nos.setgroups([]); os.setgid({uid}); os.setuid({uid}); ctypes.CDLL(None).prctl(4, 1)"
        if uid
        else ""
    )
    program = f"import os\nos.chdir({str(folder)!r})\n{become}\n{WAIT}"
    with running(program, "--deepspeed", path, environ=environ):
        yield


def seen(seconds: float = 8.0) -> LocalJob:
    """The job, once its file is read, or as it is after so long."""
    configs = ConfigFiles()
    watch = Watch(ProcessTable(Proc(), frozenset([MARK[0]])), MARK, (), 60.0, configs)
    until = time.monotonic() + seconds
    try:
        while not (job := jobs(watch.see())[0]).topology and not job.notes and time.monotonic() < until:
            time.sleep(0.05)
        return job
    finally:
        watch.close()


def test_a_real_trainer_s_file_is_read_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    with trainer(tmp_path, "ds.json"):
        job = seen(30.0)
    assert job.topology == "tp=4,dp=2,pp=2"
    (note,) = job.notes
    assert "tp=4,dp=2,pp=2" in note and note.endswith(" ds.json (autotp_size in ds.json, stages in ds.json)")


@pytest.mark.parametrize(
    ("folders", "topology", "note"),
    [
        (["conf"], "tp=2,dp=2,pp=4", "its configuration file conf/7b.yaml"),
        (["."], "tp=2,dp=2,pp=4", "its configuration file 7b.yaml"),
        (["conf", "config"], "", " each of conf, config"),
        ([], "", ""),
    ],
)
def test_a_file_of_hydra_s_is_found_by_its_name_where_only_one_can_be_meant(
    tmp_path: Path, folders: list[str], topology: str, note: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for folder in folders:
        (run / folder).mkdir(exist_ok=True)
        (run / folder / "7b.yaml").write_text(MEGATRON)
    (run / "gpt.py").write_text(WAIT)
    start = f"import os, sys\nos.chdir({str(run)!r})\n"
    start += "os.execv(sys.executable, [sys.executable, '-u', 'gpt.py', '--config-name', '7b'])"
    environ = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "16", "HANGDOG_JOB": "configured", MARK[0]: MARK[1]}
    with running(start, environ=environ):
        job = seen(30.0 if note else 3.0)
    assert job.topology == topology and note in " ".join(job.notes) and bool(job.notes) is bool(note)


@pytest.mark.parametrize("kind", ["fifo", "folder", "nothing"])
def test_what_is_no_regular_file_is_never_opened(tmp_path: Path, kind: str) -> None:
    """A FIFO whose writer waits for a reader would show it: nobody comes."""
    path = tmp_path / "ds.json"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    with trainer(tmp_path, "ds.json"):
        job = seen(3.0)
        if kind == "fifo":
            with pytest.raises(OSError, match="No such device"):
                os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    assert job.topology == "" and job.notes == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have a trainer of another user")
@pytest.mark.parametrize(("mode", "read"), [(0o644, True), (0o600, False)])
def test_a_file_that_its_user_may_not_read_is_not_read_for_it(mode: int, read: bool) -> None:
    """A command line may name any file of this machine, and the agent may read all of them."""
    with tempfile.TemporaryDirectory(prefix="hc-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "ds.json").write_text(DEEPSPEED)
        (folder / "ds.json").chmod(mode)
        with trainer(folder, "ds.json", NOBODY):
            job = seen(30.0 if read else 5.0)
    assert job.topology == ("tp=4,dp=2,pp=2" if read else "") and bool(job.notes) is read
