"""A real agent whose certificate is renewed on the disk goes on under the new one without a restart."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from hangdog_proto import x509
from hangdog_proto.client import certificate_folder
from hangdog_server.auth import certificates
from hangdog_server.auth import issuer as issuing
from support.servers.guarded import Cluster, guarded, now

pytestmark = pytest.mark.slow  # it measures time

#: What is left of the first certificate when the agent starts, which takes a second. Seconds.
LEFT_S = 5.0


async def test_an_agent_comes_back_with_a_renewed_certificate(cluster: Cluster) -> None:
    own = cluster.machine("gpu-a", now() - certificates.DAYS * 86400.0 + LEFT_S)
    new = cluster.machine("gpu-a")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOG_")}
    async with guarded(cluster) as on:
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hangdog_agent.main", "--machine", "gpu-a", "--server", on.address),
            *("--tls", str(own), "--match-env", "HANGDOG_JOB=of-nobody"),
            env=clean,
            stderr=asyncio.subprocess.PIPE,
        )
        assert agent.stderr is not None
        try:
            async with asyncio.timeout(LEFT_S + 40):
                while b"connected to" not in await agent.stderr.readline():
                    pass
                for path in certificate_folder.paths(new):
                    path.replace(own / path.name)
                while b"the certificate of machine gpu-a has expired" not in await agent.stderr.readline():
                    pass
                while b"connected to" not in await agent.stderr.readline():
                    pass
            assert [line.name for line in await on.machines() if line.connected] == ["gpu-a"]
        finally:
            agent.kill()
            await agent.communicate()


@pytest.mark.slow
async def test_an_agent_has_its_certificate_renewed_and_comes_back_with_it(cluster: Cluster, tmp_path: Path) -> None:
    """With an issuer nobody has to do anything: the first certificate ends, and the agent is there."""
    own = cluster.machine("gpu-a", now() - certificates.DAYS * 86400.0 + LEFT_S)
    issuer = issuing.make(cluster.home / "issuer", now())
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOG_")}
    async with guarded(cluster, issuer=issuer) as on:
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hangdog_agent.main", "--machine", "gpu-a", "--server", on.address),
            *("--tls", str(own), "--state", str(tmp_path), "--match-env", "HANGDOG_JOB=of-nobody"),
            env=clean,
            stderr=asyncio.subprocess.PIPE,
        )
        assert agent.stderr is not None
        try:
            async with asyncio.timeout(LEFT_S + 40):
                for words in (b"connected to", b"was renewed, and ends on", b"has expired", b"connected to"):
                    while words not in await agent.stderr.readline():
                        pass
            assert [line.name for line in await on.machines() if line.connected] == ["gpu-a"]
            assert (
                x509.read_pem(certificate_folder.read(own, tmp_path / "renewed.pem").certificate).ends
                > now() + 6 * 86400.0
            )
        finally:
            agent.kill()
            await agent.communicate()
