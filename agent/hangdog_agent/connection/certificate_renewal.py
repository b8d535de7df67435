"""Renews this machine's certificate over the connection that the present one authenticates: a new key, a request, and its answer put in place as a whole."""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hangdog_models.errors import HangdogError, NotAllowed, WrongUse
from hangdog_proto import x509 as leaf
from hangdog_proto.client import server_auth
from hangdog_proto.generated import hangdog_pb2 as pb

#: What the file with the renewed key and certificate is called. One file: whoever reads it finds a pair that fits.
NAME = "renewed.pem"
#: A server answers within some milliseconds; one that takes longer has lost the request. Seconds.
ANSWER_S = 60.0
#: Between two tries. A server signs for one machine about once in an hour. Seconds.
AGAIN_S = 3600.0
#: The machines of a cluster that were set up together would all come at the same moment. Seconds.
SPREAD_S = 1800.0

log = logging.getLogger(__name__)
Say = Callable[[pb.FromAgent], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RenewalRequest:
    """A new private key and the request that belongs to it, both PEM."""

    key: bytes
    request: bytes


class Renewal:
    """Has the certificate in `folder` renewed, and keeps what comes of it in `kept`."""

    def __init__(
        self,
        folder: Path,
        kept: Path,
        machine: str,
        draw: Callable[[float, float], float] = random.uniform,
        again_s: float = AGAIN_S,
    ) -> None:
        """`machine` is the name that a new certificate has to be for; `again_s` is between two tries."""
        self._folder = folder
        self._kept = kept
        self._machine = machine
        self._draw = draw
        self._again_s = again_s
        self._answer: asyncio.Future[pb.Renewed] | None = None

    async def keep(self, say: Say, server: str, in_s: float) -> None:
        """Renews once, in `in_s` seconds or soon after, for as long as the connection lasts; tries again where that fails."""
        pause = in_s + self._draw(0.0, min(SPREAD_S, max(in_s, 0.0)))
        while True:
            await asyncio.sleep(min(max(pause, 0.0), 366 * 86400.0))
            try:
                await self._renew(say, server)
                return
            except (HangdogError, OSError, ValueError, TimeoutError) as error:
                words = str(error) or "no answer came"
                log.warning("the certificate was not renewed; the current one stays in use: %s", words)
            pause = self._draw(self._again_s / 2, self._again_s)

    def answered(self, answer: pb.Renewed) -> None:
        """Hears the server's answer; one that nobody waits for is passed over."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    async def _renew(self, say: Say, server: str) -> None:
        made = await asyncio.to_thread(request)
        self._answer = asyncio.get_running_loop().create_future()
        try:
            await say(pb.FromAgent(renew=pb.Renew(request=made.request)))
            answer = await asyncio.wait_for(self._answer, ANSWER_S)
        finally:
            self._answer = None
        if answer.refused or not answer.certificate:
            raise NotAllowed(f"the server refused: {answer.refused or 'it sent none'}", code="renewal-refused")
        ends = await asyncio.to_thread(self._take, made.key, answer.certificate, server)
        until = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%d")
        log.info("the certificate was renewed, and ends on %s; the next connection uses it", until)

    def _take(self, key: bytes, certificate: bytes, server: str) -> float:
        """Checks the new pair, tries it on the server, and puts it in place; gives when it ends."""
        found = _checked(key, certificate, self._machine)
        new = self._kept.with_name(f".{self._kept.name}.new")
        try:
            write(new, key + certificate)
            if not server_auth.accepts(server, self._folder, new):
                raise NotAllowed(
                    "the server does not accept the certificate that it has signed", code="renewal-refused"
                )
            new.rename(self._kept)
            _sync(self._kept.parent)
        finally:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
        return found.ends


def request() -> RenewalRequest:
    """A new key on the curve P-256, and a request that is signed with it and asks for no name: the server knows whose it is."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return RenewalRequest(private, made.public_bytes(serialization.Encoding.PEM))


def write(path: Path, content: bytes) -> None:
    """Writes a file that its owner alone can read, and waits until it is on the disk; raises OSError."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:  # noqa: PTH123 - opened by descriptor
        file.write(content)
        file.flush()
        os.fsync(fd)


def _checked(key: bytes, certificate: bytes, machine: str) -> leaf.CertificateInfo:
    """What the new certificate says; raises WrongUse where it does not fit the key, or is not this machine's alone."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = leaf.read_pem(certificate)
    own = load_pem_private_key(key, None).public_key()
    if x509.load_pem_x509_certificate(certificate).public_key() != own:
        raise WrongUse("the new certificate belongs to another key", code="unusable-certificate")
    if found.owners != (f"machine {machine}",) or not found.client_auth:
        raise WrongUse(f"the new certificate is not for machine {machine}", code="certificate-of-another-machine")
    return found


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
