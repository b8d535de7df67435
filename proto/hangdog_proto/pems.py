"""Reads the folder that holds a certificate: what its owner shows to others, and whom it believes."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from hangdog_models.errors import WrongUse

#: Names of the authority's certificate, of one's own and of its key: ours, and those of cert-manager and Kubernetes.
NAMES = (("ca.pem", "cert.pem", "key.pem"), ("ca.crt", "tls.crt", "tls.key"))
#: Bytes of one file: a chain of ten certificates is some 20 KiB.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Pems:
    """The authority's certificate, one's own (chain) and its private key, as PEM; the last two are empty together."""

    authority: bytes
    certificate: bytes = b""
    key: bytes = b""


def paths(folder: Path) -> tuple[Path, Path, Path]:
    """Where the three files of a folder are, by whichever names it uses."""
    chosen = next((names for names in NAMES if (folder / names[0]).exists()), NAMES[0])
    return (folder / chosen[0], folder / chosen[1], folder / chosen[2])


def read(folder: Path) -> Pems:
    """The files of a folder as they are now; raises WrongUse. A folder with the authority's certificate alone shows nothing."""
    authority, certificate, key = paths(folder)
    if not certificate.exists() and not key.exists():
        return Pems(_content(authority))
    return Pems(_content(authority), _content(certificate), _content(key))


def channel_credentials(folder: Path) -> grpc.ChannelCredentials:
    """What a client opens its channel with, read anew each time, so that a renewed certificate counts; raises WrongUse."""
    found = read(folder)
    return grpc.ssl_channel_credentials(found.authority, found.key or None, found.certificate or None)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST + 1)
    except OSError as error:
        advice = "a folder from `hangdog certs` holds ca.pem, cert.pem and key.pem; see docs/security.md"
        raise WrongUse(f"cannot read {path}: {error.strerror}", advice) from error
    if len(content) > _MOST or b"-----BEGIN " not in content:
        raise WrongUse(f"{path} is no PEM file", "make one with `hangdog certs`; see docs/security.md")
    return content
