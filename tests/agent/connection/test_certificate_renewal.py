"""The agent's side of a renewal: what it takes for its own, and what is left when it is killed or the disk is full."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.connection import certificate_renewal
from hangdog_agent.connection.certificate_renewal import NAME, Renewal
from hangdog_agent.connection.identity import Identity
from hangdog_proto import x509
from hangdog_proto.client import certificate_folder, server_auth
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth import certificates
from hangdog_server.auth import issuer as issuing
from hangdog_server.auth.issuer import Issuer
from support.servers.guarded import Cluster, made, now


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return made(tmp_path / "ca")


@pytest.fixture
def issuer(cluster: Cluster) -> Issuer:
    return Issuer(issuing.make(cluster.home / "issuer", now()), now)


@pytest.fixture
def folder(cluster: Cluster) -> Path:
    """Of a certificate that is half through its life."""
    return cluster.machine("gpu-a", now() - 50 * 86400.0)


def serial(folder: Path, renewed: Path) -> str:
    """Which certificate the agent shows; that it fits its key is checked on the way."""
    own = Identity("localhost:1", "gpu-a", "1", folder, renewed=renewed).reach("localhost:1").own
    server_auth._context(folder, own)  # OpenSSL refuses a key that does not fit
    return x509.read_pem(certificate_folder.read(folder, own).certificate).serial


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A server that accepts what it signs; the files it was tried with."""
    tried: list[Path] = []

    def accepts(address: str, folder: Path, own: Path) -> bool:
        tried.append(own)
        return True

    monkeypatch.setattr(server_auth, "accepts", accepts)
    return tried


async def kept(
    renewal: Renewal, answer: Callable[[bytes], pb.Renewed], until: Callable[[], bool], in_s: float = 0.0
) -> list[bytes]:
    """Keeps a certificate with a server that answers like that until something holds; the requests it heard."""
    heard: list[bytes] = []

    async def say(message: pb.FromAgent) -> None:
        heard.append(message.renew.request)
        renewal.answered(answer(message.renew.request))

    task = asyncio.create_task(renewal.keep(say, "localhost:1", in_s))
    async with asyncio.timeout(20):
        while not until():
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return heard


async def test_a_renewed_certificate_counts_from_the_next_connection_on(
    tmp_path: Path, folder: Path, issuer: Issuer, accepted: list[Path]
) -> None:
    path = tmp_path / NAME
    before = serial(folder, path)
    await kept(
        Renewal(folder, path, "gpu-a"),
        lambda request: pb.Renewed(certificate=issuer.sign(request, "gpu-a")),
        path.exists,
    )
    assert serial(folder, path) != before and path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in accepted] == [f".{NAME}.new"], "it was tried before it counted"
    assert sorted(one.name for one in tmp_path.glob(".*")) == []
    mine = Identity("localhost:1", "gpu-a", "1", folder, renewed=path)
    assert mine.reach("localhost:1", other=True).own is None, "the older one is tried where the newer is refused"
    # whatever people put in place later counts again
    newer = certificates.machine(folder.parents[1], "gpu-a", now() + 60, tmp_path / "by-hand")
    for one in certificate_folder.paths(newer):
        one.replace(folder / one.name)
    assert serial(folder, path) == x509.read_pem((folder / "cert.pem").read_bytes()).serial


async def test_what_does_not_fit_leaves_the_old_one_and_is_tried_again(
    tmp_path: Path, folder: Path, issuer: Issuer, accepted: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / NAME
    before = serial(folder, path)
    answers: list[Callable[[bytes], pb.Renewed]] = [
        lambda request: pb.Renewed(refused="not today"),
        lambda request: pb.Renewed(),
        lambda request: pb.Renewed(certificate=b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        lambda request: pb.Renewed(certificate=issuer.sign(request, "gpu-b")),
        lambda request: pb.Renewed(certificate=issuer.sign(certificate_renewal.request().request, "gpu-a")),
    ]
    number = iter(range(100))
    heard = await kept(
        Renewal(folder, path, "gpu-a", again_s=0.01),
        lambda request: answers[next(number) % len(answers)](request),
        lambda: caplog.text.count("was not renewed") >= len(answers),
    )
    for words in ("not today", "it sent none", "is not for machine gpu-a", "belongs to another key"):
        assert words in caplog.text
    assert len(set(heard)) == len(heard), "each try has a key of its own"
    assert serial(folder, path) == before and not path.exists() and accepted == []


async def test_a_certificate_that_the_server_does_not_accept_is_not_put_in_place(
    tmp_path: Path, folder: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_auth, "accepts", lambda *_: False)
    path = tmp_path / NAME
    await kept(
        Renewal(folder, path, "gpu-a", again_s=60),
        lambda request: pb.Renewed(certificate=issuer.sign(request, "gpu-a")),
        lambda: "does not accept the certificate that it has signed" in caplog.text,
    )
    assert list(tmp_path.glob("*renewed*")) == list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize("where", ["fsync", "open", "rename"])
async def test_a_full_or_read_only_disk_leaves_the_old_one(
    tmp_path: Path,
    folder: Path,
    issuer: Issuer,
    accepted: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    path = tmp_path / NAME
    before = serial(folder, path)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path if where == "rename" else os, where, full)
    await kept(
        Renewal(folder, path, "gpu-a", again_s=60),
        lambda request: pb.Renewed(certificate=issuer.sign(request, "gpu-a")),
        lambda: "No space left on device" in caplog.text,
    )
    monkeypatch.undo()
    assert serial(folder, path) == before and list(tmp_path.glob(".*")) == []


_KILLED = """
import os, signal, sys
from pathlib import Path
from hangdog_agent.connection import certificate_renewal
from hangdog_proto.client import server_auth
where, folder, kept, made = sys.argv[1], *map(Path, sys.argv[2:])
kill = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
key, certificate = (made / "key").read_bytes(), (made / "cert").read_bytes()
server_auth.accepts = lambda *_: True
if where == "half written":
    real = os.fsync
    def half(fd):
        os.ftruncate(fd, 300)
        kill()
    os.fsync = half
elif where == "written":
    server_auth.accepts = kill
elif where == "renamed":
    certificate_renewal._sync = kill
certificate_renewal.Renewal(folder, kept, "gpu-a")._take(key, certificate, "localhost:1")
"""


@pytest.mark.parametrize("where", ["half written", "written", "renamed"])
def test_killed_in_the_middle_the_agent_has_a_pair_that_fits(
    tmp_path: Path, folder: Path, issuer: Issuer, where: str
) -> None:
    path, made = tmp_path / "state" / NAME, tmp_path / "made"
    path.parent.mkdir()
    made.mkdir()
    before = serial(folder, path)
    asked = certificate_renewal.request()
    signed = issuer.sign(asked.request, "gpu-a")
    (made / "key").write_bytes(asked.key)
    (made / "cert").write_bytes(signed)
    command = (sys.executable, "-c", _KILLED, where, folder, path, made)
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert serial(folder, path) == (x509.read_pem(signed).serial if where == "renamed" else before)
    command = (sys.executable, "-c", _KILLED, "nowhere", folder, path, made)
    assert subprocess.run(command, check=False).returncode == 0, "what was left behind is in nobody's way"
    assert serial(folder, path) == x509.read_pem(signed).serial and len(list(path.parent.iterdir())) == 1


def test_a_renewed_file_that_is_damaged_is_passed_over(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / NAME
    for damage in (b"", b"-----BEGIN CERTIFICATE-----\n", b"\xff" * 100, (folder / "cert.pem").read_bytes()):
        path.write_bytes(damage)
        assert serial(folder, path) == x509.read_pem((folder / "cert.pem").read_bytes()).serial
    assert "is not used" in caplog.text


async def test_it_waits_as_long_as_the_server_says_and_not_all_at_once(folder: Path, tmp_path: Path) -> None:
    drawn: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        drawn.append((low, high))
        return 3600.0

    heard = await kept(
        Renewal(folder, tmp_path / NAME, "gpu-a", draw), lambda _: pb.Renewed(), lambda: bool(drawn), 9e9
    )
    assert (heard, drawn) == ([], [(0.0, certificate_renewal.SPREAD_S)])
