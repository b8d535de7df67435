"""Secrets in command lines: none survives, and what tells a program does."""

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_agent.discovery.redact import HIDDEN, command_line, text

#: Where secrets stand in a text, one `{}` each.
SHAPES = [
    "password={}", "token: {}", '{{"api_key": "{}"}}', "Authorization: Bearer {}", "postgres://me:{}@db/x", "bearer {}",
    "x?sig={}&y=1", "export HF_TOKEN={}; python train.py", "AccountKey={};x=1",
]  # fmt: skip


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
        ["python", "train.py", "--token", "hunter2"],
        ["python", "train.py", "--password=my hunter2, and more"],
        ["python", "train.py", "--pass", "hunter2"],
        ["python", "train.py", "+AWS_SECRET_ACCESS_KEY=hunter2"],
        ["env", "AWS_SESSION_TOKEN=a/hunter2+b==", "DB_PASS=hunter2", "MYSQL_PWD=hunter2", "python", "train.py"],
        ["mpirun", "-x", "HF_TOKEN=hunter2", "python", "train.py"],
        ["docker", "run", "--env=WANDB_API_KEY=hunter2", "image"],
        ["docker", "login", "-u", "me", "-p", "hunter2", "registry.example.org"],
        ["sudo", "sshpass", "-p", "hunter2", "ssh", "node"],
        ["sshpass", "-phunter2", "ssh", "node"],
        ["mysql", "-phunter2", "-h", "db"],
        ["curl", "-u", "me:hunter2", "https://x"],
        ["curl", "--user=me:hunter2", "https://x"],
        ["curl", "-H", "Authorization: Bearer hunter2", "https://x"],
        ["curl", "-H", "authorization: Basic hunter2", "https://x"],
        ["curl", "-H", "X-Api-Key: hunter2", "https://x"],
        ["grpcurl", "-rpc-header", "a: bearer hunter2"],
        ["smbclient", "//x/y", "-U", "me%hunter2"],
        ["python", "train.py", "--db", "postgres://me:p/hunter2@db/x"],
        ["python", "train.py", "--db", "postgres://me:p@hunter2@db/x"],
        ["python", "train.py", "--azure", "AccountName=me;AccountKey=hunter2==;EndpointSuffix=x"],
        ["bash", "-lc", "login hunter2"],
        ["/usr/bin/bash", "-euxc", "login hunter2"],
        ["python3.11", "-clogin('hunter2')"],
        ["srun", "bash", "-lc", "login hunter2"],
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
        "0123456789abcdef" * 4,
        "nvapi-abcdefgh_ijkl-mnop",
        "wandb_v1_abcdefghijklmnop",
        "glpat-abcdefgh-ijkl",
        "hangdog_" + "aB3-_" * 8 + "xyz",
        "eyJhcGlfYWRkcmVzcyI6Imh0dHBzOi8vYXBwLm5lcHR1bmUuYWkifQ==",
        "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
        "-----BEGIN PRIVATE KEY-----\nMIGH",
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
        "srun -p gpu-a100 -n 64 python train.py",
        "docker run -p 8080:80/tcp -u 1000 image",
        "python -m http.server -p 8000 --user me",
        "python train.py --pipeline.keyframes=3 --compass 2 --data s3://bucket/x",
    ],
)
def test_what_is_no_secret_is_shown(line: str) -> None:
    assert command_line(line.split()) == line


#: What a secret is made of: no blanks, and nothing that ends a word in a shell or a URL by itself.
PLAIN = st.text(string.ascii_letters + string.digits + "_-+/=.~!", min_size=12, max_size=40).map(lambda it: f"Q{it}Q")
#: Anything at all, behind an option of its own.
ANYTHING = st.text(min_size=12, max_size=60).map(lambda it: f"Q{it}Q")
NAMES = st.sampled_from(
    ["token", "hf_token", "HF-TOKEN", "password", "db.password", "secret", "api_key", "apiKey", "aws-secret-access-key",
     "passphrase", "auth", "credentials", "private_key", "pwd", "pass", "cookie", "jwt", "signing-key", "wandb.api_key"]
)  # fmt: skip


@given(
    NAMES, ANYTHING, st.lists(st.sampled_from(["--lr", "1", "train.py", "-v", "x=1"]), max_size=4), st.integers(0, 2)
)
def test_whatever_a_secret_is_made_of_its_option_hides_it(name: str, secret: str, rest: list[str], form: int) -> None:
    given_ = [[f"--{name}", secret], [f"--{name}={secret}"], [f"{name}={secret}"]][form]
    line = command_line(["python", "train.py", *given_, *rest])
    assert secret not in line and secret[1:-1] not in line
    assert line.startswith("python train.py ") and HIDDEN in line


@given(PLAIN, st.sampled_from(SHAPES))
def test_a_secret_in_a_text_is_hidden_by_what_stands_before_it(secret: str, shape: str) -> None:
    assert secret not in command_line(["python", "train.py", shape.format(secret)])
    assert secret not in text(shape.format(secret))


@given(st.lists(st.text(max_size=300), max_size=20))
def test_any_command_line_is_bounded_and_hiding_twice_hides_no_more(arguments: list[str]) -> None:
    assert len(command_line(arguments)) <= 1000
    assert all(text(text(one)) == text(one) for one in arguments[:3])


def test_a_long_line_is_cut() -> None:
    assert len(command_line(["python", *(f"file-{number}" for number in range(10_000))])) == 1000


def test_a_hostile_line_costs_no_time() -> None:
    began = time.thread_time()
    command_line(["python", *(["a" * 1_000_000] * 64)])
    command_line(["python", *(["--" + "-key" * 200] * 64)])
    assert time.thread_time() - began < 1.0
