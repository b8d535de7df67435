"""A real agent whose certificate is renewed on the disk goes on under the new one without a restart."""

import asyncio
import os
import sys

from guarded import Cluster, guarded, now
from hangdog_proto import pems
from hangdog_server import certs

#: What is left of the first certificate when the agent starts, which takes a second. Seconds.
LEFT_S = 5.0


async def test_an_agent_comes_back_with_a_renewed_certificate(cluster: Cluster) -> None:
    own = cluster.machine("gpu-a", now() - certs.DAYS * 86400.0 + LEFT_S)
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
                for path in pems.paths(new):
                    path.replace(own / path.name)
                while b"the certificate of machine gpu-a has ended" not in await agent.stderr.readline():
                    pass
                while b"connected to" not in await agent.stderr.readline():
                    pass
            assert [line.name for line in await on.machines() if line.connected] == ["gpu-a"]
        finally:
            agent.kill()
            await agent.communicate()
