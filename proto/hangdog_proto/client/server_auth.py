"""Checks a server's certificate before gRPC speaks to that server: gRPC itself accepts one that names no use, and knows no deny list."""

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from hangdog_models.errors import NotAllowed, ServerUnreachable, WrongUse
from hangdog_proto import deny_list, x509
from hangdog_proto.client import certificate_folder
from hangdog_proto.deny_list import DenyList
from hangdog_proto.x509 import CertificateInfo

#: A server that is there shakes hands within some milliseconds; one attempt of gRPC's own may take as long. Seconds.
WITHIN_S = 5.0
#: What OpenSSL and BoringSSL say of a certificate whose dates do not fit the clock of whoever looks at it.
_DATES = ("certificate is not yet valid", "certificate has expired")


@dataclass(frozen=True, slots=True)
class Verified:
    """A server's certificate that was checked: `pem` is all that gRPC is to believe from then on."""

    pem: bytes
    leaf: CertificateInfo


def verified(address: str, folder: Path, own: Path | None = None, within_s: float = WITHIN_S) -> Verified:
    """Shakes hands with the server at `address` (HOST:PORT), and checks who it is.

    `folder` holds the authority's certificate, one's own and perhaps a deny list; `own` as in `pems.read`. gRPC must be given what comes back as the only certificate that it believes: whoever answers
    the next handshake has to have the very key that was checked here. Raises ServerUnreachable where there is no
    server or its certificate is not of the authority, NotAllowed where its certificate must not be used, WrongUse
    where our own files cannot be read.
    """
    der, _ = _handshake(address, folder, own, within_s)
    try:
        found = x509.read_der(der)
    except ValueError as error:
        raise NotAllowed(
            f"the certificate of {address} cannot be read: {error}", code="unusable-certificate"
        ) from error
    require_server(found, address)
    denied = DenyList(folder / deny_list.NAME)
    if reason := denied.refuses(found):
        raise NotAllowed(
            f"the server at {address}: {reason}",
            f"mend {folder / deny_list.NAME}" if denied.broken else "ask the operator of the server; docs/security.md",
            code="damaged-deny-list" if denied.broken else "denied-certificate",
        )
    return Verified(ssl.DER_cert_to_PEM_cert(der).encode(), found)


def require_server(found: CertificateInfo, address: str) -> None:
    """Raises NotAllowed unless the certificate is a server's."""
    if not found.server_auth:
        what = f"the certificate of {address} does not allow server authentication"
        raise NotAllowed(
            what,
            "its extended key usage must name serverAuth: hangdog certs server; docs/security.md",
            code="wrong-certificate",
        )
    if found.owners and not any(owner.startswith("server ") for owner in found.owners):
        raise NotAllowed(
            f"{address} shows the certificate of {found.owners[0]}, which is not a server",
            "is the address right?",
            code="wrong-certificate",
        )


def date_hint(words: str) -> str:
    """What to do where TLS refuses the server's certificate for its dates, by its words; empty where it does not."""
    if not any(text in words for text in _DATES):
        return ""
    return "by this machine's clock the server's certificate is not valid now: is the date here right? else renew it"


def accepts(address: str, folder: Path, own: Path, within_s: float = WITHIN_S) -> bool:
    """Whether the server at `address` speaks to whoever shows the certificate in `own`.

    In TLS 1.3 a client learns only from what comes after the handshake that its certificate was refused. An HTTP/2
    server speaks first. Raises as `verified` does.
    """
    _, first = _handshake(address, folder, own, within_s, wait=True)
    return bool(first)


def _handshake(
    address: str, folder: Path, own: Path | None, within_s: float, wait: bool = False
) -> tuple[bytes, bytes]:
    """The certificate of a server in DER, and the first bytes it says where they are waited for."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    context = _context(folder, own)
    start = "start one with `hangdog server`, or name another with --server or HANGDOG_SERVER"
    try:
        with (
            socket.create_connection((host, int(port)), within_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as tls,
        ):
            der = tls.getpeercert(binary_form=True)
            first = tls.recv(1) if wait else b""
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; a name that IDNA cannot write is a ValueError
        words = f"{error}"
        advice = f"{start}; or its certificate and that of --tls are of different authorities: hangdog certs show DIR"
        raise ServerUnreachable(
            f"no server answers at {address} over TLS ({words})", date_hint(words) or advice, code="server-unreachable"
        ) from error
    assert der is not None  # a handshake without a certificate fails
    return der, first


def _context(folder: Path, own: Path | None) -> ssl.SSLContext:
    found = certificate_folder.read(folder, own)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC does: an authority need not be a root
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cadata=found.authority.decode("ascii", "replace"))
        if own is not None:
            context.load_cert_chain(own)
        elif found.certificate:
            context.load_cert_chain(*certificate_folder.paths(folder)[1:])
    except (OSError, ValueError) as error:
        what = f"the certificates in {folder} cannot be used: {getattr(error, 'reason', None) or error}"
        raise WrongUse(
            what, "hangdog certs show DIR lists what is in it; docs/security.md", code="unusable-certificate"
        ) from error
    return context
