"""The server's side of TLS: its certificate, taken up anew when its files change, and what a peer's certificate says."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hangdog_models.errors import HangdogError, WrongUse
from hangdog_proto import x509 as leaves
from hangdog_proto.client import certificate_folder
from hangdog_proto.x509 import CertificateInfo

MACHINE = "machine"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Peer:
    """What the certificate of a peer says; without one all is empty. `machines` are those it may speak for.

    `name` is whom it identifies: `machine gpu-a17`, `client alice`; empty where it identifies nobody. `label` is what
    the log calls it. `leaf` is None without a certificate. `unreadable` says why a certificate could not be read.
    """

    machines: frozenset[str] = frozenset()
    name: str = ""
    label: str = ""
    leaf: CertificateInfo | None = None
    unreadable: str = ""

    @property
    def ends(self) -> float | None:
        """Unix time when the certificate ends; None without one."""
        return self.leaf.ends if self.leaf is not None else None


NOBODY = Peer()


def peer(auth: Mapping[str, Iterable[bytes]], trust_dns_names: bool = False) -> Peer:
    """What gRPC's authentication context says of the peer; its chain and dates have been checked by then.

    A URI of ours says whose the certificate is, and then nothing else counts: a person's is not a machine's. Without
    one it identifies nobody, unless the operator trusts DNS names: then these are the machines it may speak for.
    """
    pem = next(iter(auth.get("x509_pem_cert", ())), b"")
    if not pem:
        return NOBODY
    try:
        found = leaves.read_pem(pem)
    except ValueError as error:
        return Peer(label="a certificate that cannot be read", unreadable=str(error))
    if found.owners:
        pairs = [owner.partition(" ") for owner in found.owners]
        machines = frozenset(name for kind, _, name in pairs if kind == MACHINE)
        return Peer(machines, found.owners[0], found.owners[0], found)
    dns = [name for name in _texts(auth, "peer_dns") if name.isprintable() and " " not in name]
    label = next(iter(dns), "") or next(iter(_texts(auth, "x509_common_name")), "") or f"serial number {found.serial}"
    if trust_dns_names and dns:  # a common name never counts: `client portal` would be one
        return Peer(frozenset(dns), dns[0], label, found)
    return Peer(label=label, leaf=found)


class Certificate:
    """The certificate in a folder, as it is on the disk; one that cannot be read leaves the one before in its place."""

    def __init__(self, folder: Path, clock: Callable[[], float], believed: bytes = b"") -> None:
        """Reads it; raises WrongUse when it is not there, does not fit its key, or has ended.

        `believed` is one more authority, as PEM, whose certificates are accepted beside those of the folder's.
        """
        self._folder = folder
        self._believed = believed
        self._clock = clock
        self._seen = self._stamp()
        self._turn = threading.Lock()
        self.begins = 0.0
        self.ends = self._checked(certificate_folder.read(folder))

    def credentials(self, mutual: bool) -> grpc.ServerCredentials:
        """What a port is opened with; `mutual` ports speak only to peers with a certificate of the same authority."""
        current = {"stamp": self._seen}

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            """The certificate when it is another than last time; called for each handshake, in a thread of gRPC's."""
            with self._turn:
                stamp = self._stamp()
                if stamp == current["stamp"]:
                    return None
                current["stamp"] = stamp
                try:
                    found = certificate_folder.read(self._folder)
                    self.ends = self._checked(found)
                except HangdogError as error:
                    log.error("the server's renewed certificate is not used: %s", error)
                    return None
                log.info("the server's certificate was renewed, and ends on %s", day(self.ends))
                return _configuration(found, self._believed)

        first = _configuration(certificate_folder.read(self._folder), self._believed)
        return grpc.dynamic_ssl_server_credentials(
            first,
            fetch,  # type: ignore[arg-type]  # None says that nothing has changed
            require_client_authentication=mutual,
        )

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(_stamp(path) for path in certificate_folder.paths(self._folder))

    def _checked(self, found: certificate_folder.CertificateFiles) -> float:
        advice = "hangdog certs show DIR lists what is in it; docs/authentication.md says how to renew it"
        if not found.certificate:
            raise WrongUse(
                f"{self._folder} holds no certificate of a server",
                "hangdog certs init makes one",
                code="no-server-certificate",
            )
        try:
            own = x509.load_pem_x509_certificate(found.certificate)
            key = load_pem_private_key(found.key, None)
        except (TypeError, ValueError, UnsupportedAlgorithm) as error:
            raise WrongUse(
                f"the certificate in {self._folder} cannot be read: {error}", advice, code="unusable-certificate"
            ) from error
        if own.public_key() != key.public_key():
            raise WrongUse(
                f"the certificate in {self._folder} belongs to another key than the one beside it",
                advice,
                code="unusable-certificate",
            )
        ends = own.not_valid_after_utc.timestamp()
        if ends <= self._clock():
            raise WrongUse(
                f"the certificate in {self._folder} expired on {day(ends)}", advice, code="expired-certificate"
            )
        self.begins = own.not_valid_before_utc.timestamp()
        return ends


def day(moment: float) -> str:
    """A Unix time as a date, UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


def _configuration(found: certificate_folder.CertificateFiles, believed: bytes) -> grpc.ServerCertificateConfiguration:
    authorities = found.authority.rstrip() + b"\n" + believed
    return grpc.ssl_server_certificate_configuration([(found.key, found.certificate)], authorities)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _texts(auth: Mapping[str, Iterable[bytes]], key: str) -> list[str]:
    return [value.decode("utf-8", "replace") for value in auth.get(key, ())]
