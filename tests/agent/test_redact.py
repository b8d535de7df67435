"""Secrets in command lines: none survives, and what tells a program does."""

import time

import pytest

from hangdog_agent.redact import HIDDEN, command_line


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "train.py", "--hf-token", "hunter2"],
        ["python", "train.py", "--hf-token=hunter2"],
        ["python", "train.py", "--HF_TOKEN=hunter2"],
        ["python", "train.py", "logger.wandb.api_key=hunter2"],
        ["python", "train.py", "--db", "postgres://me:hunter2@db/x"],
        ["python", "train.py", "--data=s3://hunter2@bucket/x"],
        ["python", "train.py", "https://x/y?part=1&X-Amz-Signature=hunter2&z=1"],
        ["bash", "-c", "export SECRET=hunter2; python train.py"],
        ["python", "-c", "login('hunter2')"],
        ["python", "train.py", '{"password": "hunter2", "lr": 1}'],
        ["python", "train.py", "--credentials", "hunter2"],
        ["python", "train.py", "-password", "hunter2"],
        ["python", "train.py", "--passphrase", "-hunter2"],
    ],
)
def test_a_named_secret_is_hidden(arguments: list[str]) -> None:
    line = command_line(arguments)
    assert "hunter2" not in line
    assert line.startswith(arguments[0])


@pytest.mark.parametrize(
    "secret",
    [
        "hf_abcdefghijklmnop",
        "ghp_0123456789abcdef",
        "sk-proj-0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOi.eyJzdWIi.c2ln",
        "0123456789abcdef" * 2 + "01234567",
    ],
)
def test_a_secret_is_known_by_its_shape(secret: str) -> None:
    assert command_line(["python", "train.py", secret]) == f"python train.py {HIDDEN}"


@pytest.mark.parametrize(
    "line",
    [
        "/opt/venv/bin/python -u /workspace/trainer.py",
        "python train.py --tokenizer gpt2 --max-tokens 4096 --author me --lr 3e-4",
        "python -m torch.distributed.run --nproc-per-node=8 train.py --data /mnt/nfs/data",
        "python train.py --keys-to-keep 3 --monkey=1 --design x --passes 2 --bypass",
    ],
)
def test_what_is_no_secret_is_shown(line: str) -> None:
    assert command_line(line.split()) == line


def test_a_long_line_is_cut() -> None:
    assert len(command_line(["python", *(f"file-{number}" for number in range(10_000))])) == 1000


def test_a_hostile_line_costs_no_time() -> None:
    began = time.monotonic()
    command_line(["python", *(["a" * 1_000_000] * 64)])
    command_line(["python", *(["--" + "-key" * 200] * 64)])
    assert time.monotonic() - began < 1.0
