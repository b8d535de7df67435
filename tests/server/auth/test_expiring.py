"""Certificates that end soon are said where people look: the log, metrics, the list of machines, `hangdog doctor`."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from hangdog.main import main
from hangdog_agent.connection import own_certificate
from hangdog_agent.doctor_finding import Health
from hangdog_agent.metrics.metrics import AgentMetrics, AgentStatus
from hangdog_proto import x509
from hangdog_proto.x509 import SHARE, SOON_S, ends_soon
from hangdog_server.auth import certificates
from hangdog_server.auth import issuer as issuing
from hangdog_server.auth.tls import Peer
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.expiry_warnings import ExpiryWarnings
from hangdog_server.listener import OpenListeners
from hangdog_server.observability import metrics
from hangdog_server.observability.metrics import Metrics
from hangdog_server.settings import ServerSettings
from support.servers.guarded import Cluster, guarded, made, now

DAY = 86400.0


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return made(tmp_path / "ca")


def test_soon_is_two_weeks_and_less_of_a_short_life() -> None:
    assert ends_soon(0, 90 * DAY, 90 * DAY - SOON_S + 1) and not ends_soon(0, 90 * DAY, 90 * DAY - SOON_S - 1)
    assert ends_soon(0, 8 * DAY, 6.1 * DAY) and not ends_soon(0, 8 * DAY, 5.9 * DAY) and SHARE == 0.25
    assert ends_soon(0, 8 * DAY, 9 * DAY)


async def test_a_machines_certificate_that_ends_soon_stands_in_the_list(cluster: Cluster) -> None:
    async with guarded(cluster) as on:
        soon, later = cluster.machine("gpu-a", now() - 80 * DAY), cluster.machine("gpu-b")
        async with on.agent("gpu-a", soon) as first, on.agent("gpu-b", later) as second:
            await first.hello(llama=[0])
            await second.hello(llama=[1])
            await on.knows("gpu-a", "gpu-b")
            one, two = await on.machines()
            assert (one.certificate_ends_soon, two.certificate_ends_soon) == (True, False)
            assert 9.9 * DAY < one.certificate_left_s < 10.1 * DAY
            assert two.serial == x509.read_pem((later / "cert.pem").read_bytes()).serial
            assert on.reach is not None
            command = ["machines", "--server", on.address, "--tls", str(on.reach.tls)]
            asked = await asyncio.to_thread(
                CliRunner().invoke, main, command, env={"HANGDOG_TOKEN": on.reach.token, "COLUMNS": "200"}
            )
            assert asked.exit_code == 0 and asked.stdout.count("certificate ends in 10 d") == 1, asked.output


def fleet(*left: float) -> Fleet:
    """Connected machines whose certificates of 90 days have so many seconds left, at 0 by the fleet's clock."""
    found = Fleet(ServerSettings())
    for number, seconds in enumerate(left):
        said = x509.CertificateInfo("a", (), seconds - 90 * DAY, seconds, True, False)
        found.certificates.note(f"gpu-{number}", Peer(leaf=said), 0.0)
    return found


def test_metrics_tell_how_long_certificates_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SOONEST", 2)
    told = Metrics(CollectorRegistry(), "1")
    told.watch(fleet(500.0, 100.0, 300.0), lambda: 0.0, lambda: 42.0)
    said = told.text().decode()
    assert "\nhangdog_certificate_left_seconds 42.0\n" in said
    rows = [row for row in said.splitlines() if row.startswith("hangdog_machine_certificate_left_seconds{")]
    assert rows == [
        'hangdog_machine_certificate_left_seconds{machine="gpu-1"} 100.0',
        'hangdog_machine_certificate_left_seconds{machine="gpu-2"} 300.0',
    ]
    assert "hangdog_agent_certificate_end_time_seconds 7\n" in AgentMetrics().text(AgentStatus(certificate_ends=7.0))
    assert "hangdog_agent_certificate_end_time_seconds 7" not in AgentMetrics().text(AgentStatus())


def test_the_log_says_what_ends_soon(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdog_server.expiry_warnings.steady", lambda: 0.0)
    issuer = issuing.make(cluster.home / "issuer", now() - 25 * DAY, 30)
    own = certificates.server(cluster.home, ["localhost"], now() - 80 * DAY, cluster.home / "old")
    opened = OpenListeners("127.0.0.1:0", cluster.door(tls=own, issuer=issuer), ServerSettings(), now)
    told = ExpiryWarnings(opened, fleet(*[DAY] * 7, 60 * DAY), now).warned()
    assert told.keys() == {"server's certificate", "issuer's certificate", "machines"}
    assert told["machines"].endswith("gpu-0, gpu-1, gpu-2, gpu-3, gpu-4 and 2 more")
    left = opened.certificate_left_s()
    assert left is not None and 9.9 * DAY < left < 10.1 * DAY
    fresh = OpenListeners("127.0.0.1:0", cluster.door(), ServerSettings(), now)
    assert ExpiryWarnings(fresh, fleet(60 * DAY), now).warned() == {}


def test_doctor_says_what_is_wrong_with_this_machines_certificate(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(folder: Path) -> tuple[Health, str]:
        found = own_certificate.examined(folder, tmp_path / "renewed.pem", now())
        return found.health, found.what

    health, what = said(cluster.machine("gpu-a"))
    assert (health, what) == (Health.OK, "machine gpu-a, 90 days left")
    for folder, words in (
        (cluster.machine("gpu-a", now() - 80 * DAY), " ends on "),
        (cluster.machine("gpu-a", now() - 91 * DAY), " ended on "),
        (cluster.client("alice"), "no server "),
        (cluster.odd("gpu-a"), "no hangdog:// URI"),
        (tmp_path, "cannot read"),
    ):
        health, what = said(folder)
        assert health is Health.WARN and words in what
    monkeypatch.setenv("HANGDOG_TLS", str(cluster.machine("gpu-b")))
    assert "machine gpu-b, 90 days left" in CliRunner().invoke(main, ["doctor"], env={"COLUMNS": "200"}).stdout
