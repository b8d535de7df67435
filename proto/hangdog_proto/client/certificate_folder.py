"""Reads the folder that holds a certificate: what its owner shows to others, and whom it believes."""

import logging
from dataclasses import dataclass
from pathlib import Path

import grpc

from hangdog_models.errors import WrongUse
from hangdog_proto import x509

log = logging.getLogger(__name__)

#: Names of the authority's certificate, of one's own and of its key: ours, and those of cert-manager and Kubernetes.
NAMES = (("ca.pem", "cert.pem", "key.pem"), ("ca.crt", "tls.crt", "tls.key"))
#: Bytes of one file: a chain of ten certificates is some 20 KiB.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The authority's certificate, one's own (chain) and its private key, as PEM; the last two are empty together."""

    authority: bytes
    certificate: bytes = b""
    key: bytes = b""


def paths(folder: Path) -> tuple[Path, Path, Path]:
    """Where the three files of a folder are, by whichever names it uses."""
    chosen = next((names for names in NAMES if (folder / names[0]).exists()), NAMES[0])
    return (folder / chosen[0], folder / chosen[1], folder / chosen[2])


def read(folder: Path, own: Path | None = None) -> CertificateFiles:
    """The files of a folder as they are now; raises WrongUse. A folder with the authority's certificate alone shows nothing.

    `own`: a file with one's own key and certificate, one after the other, which counts instead of the folder's two.
    """
    authority, certificate, key = paths(folder)
    if own is not None:
        both, begins = _content(own), b"-----BEGIN CERTIFICATE-----"
        private, found, public = both.partition(begins)
        if not found or b"PRIVATE KEY-----" not in private:
            raise WrongUse(
                f"{own} holds no key with its certificate",
                "remove it: the agent then renews its certificate",
                code="unusable-certificate",
            )
        return CertificateFiles(_content(authority), begins + public, private)
    if not certificate.exists() and not key.exists():
        return CertificateFiles(_content(authority))
    return CertificateFiles(_content(authority), _content(certificate), _content(key))


def newest(folder: Path, renewed: Path | None, other: bool = False) -> Path | None:
    """The file `renewed`, where there is one whose certificate begins later than the folder's own; else None.

    A certificate that people put in place later than the renewal counts, and the other way round. `other`: the one of
    the two that would not be chosen, for whoever was refused with the first.
    """
    if renewed is None or not renewed.exists():
        return None
    try:
        later = x509.read_pem(read(folder, renewed).certificate)
        own = read(folder).certificate
        newer = not own or later.begins > x509.read_pem(own).begins
        return renewed if newer is not (other and bool(own)) else None
    except (WrongUse, ValueError) as error:
        log.warning("the renewed certificate in %s is not used: %s", renewed, error)
        return None


def channel_credentials(folder: Path, server: bytes = b"", own: Path | None = None) -> grpc.ChannelCredentials:
    """What a client opens its channel with, read anew each time, so that a renewed certificate counts; raises WrongUse.

    `own` as in `read`. `server`: the server's own certificate as PEM, where that alone is believed, instead of all of the authority.
    """
    found = read(folder, own)
    return grpc.ssl_channel_credentials(server or found.authority, found.key or None, found.certificate or None)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST + 1)
    except OSError as error:
        advice = "a folder from `hangdog certs` holds ca.pem, cert.pem and key.pem; see docs/security.md"
        raise WrongUse(f"cannot read {path}: {error.strerror}", advice, code="unreadable-file") from error
    if len(content) > _MOST or b"-----BEGIN " not in content:
        raise WrongUse(
            f"{path} is no PEM file", "make one with `hangdog certs`; see docs/security.md", code="unusable-certificate"
        )
    return content
