"""Makes the certificates of a cluster: an authority of its own, the server's, one for each machine, and people's.

Keys are on the curve P-256, which every TLS library has. Nothing is ever overwritten: a renewed certificate is made in
another folder and put in the place of the old one, and both ends take it up without a restart.
"""

import ipaddress
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hangdog_models.errors import WrongUse
from hangdog_proto.x509 import SCHEME, serial_digits
from hangdog_server.auth.tls import MACHINE

#: Days the authority lasts: longer than the machines it names, for changing it means going to every one of them.
AUTHORITY_DAYS = 5 * 365
#: Days any other certificate lasts. It bounds what a stolen key is worth that nobody has noticed to be stolen; three months
#: leave a forgotten renewal weeks to be noticed in.
DAYS = 90
#: A certificate counts from a day before it is made: clocks of machines that were just installed are hours wrong.
BEFORE = timedelta(days=1)
CLIENT, SERVER = "client", "server"
#: What a server may be called in any case: it is asked from its own machine, too.
LOCAL = ("localhost", "127.0.0.1", "::1")
#: Characters of a common name, by X.509.
COMMON_NAME = 64

_USES = {
    MACHINE: (ExtendedKeyUsageOID.CLIENT_AUTH,),
    CLIENT: (ExtendedKeyUsageOID.CLIENT_AUTH,),
    SERVER: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),  # it asks itself whether it serves
}


@dataclass(frozen=True, slots=True)
class CertificateView:
    """What a certificate says: `owner` is `machine gpu-a17`, `client alice`, `server head`, or `authority`; times are Unix.

    `serial` is its serial number in hexadecimal digits, by which it can be denied.
    """

    path: Path
    owner: str
    names: tuple[str, ...]
    issuer: str
    begins: float
    ends: float
    fingerprint: str
    serial: str


def init(folder: Path, names: Sequence[str], now: float, days: int = DAYS) -> tuple[Path, ...]:
    """Makes an authority in `folder`, and in `folder/server` a certificate for a server that is reached by these names."""
    for name in names:
        _alternative(name)  # a mistake leaves nothing half made
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hangdog authority")])
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        builder(subject, subject, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    if (folder / "ca.pem").exists() or (folder / "ca.key").exists():
        raise there(folder / "ca.pem")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUse(
            f"cannot write {folder}: {error.strerror}", "name another folder", code="unwritable-file"
        ) from error
    _write(folder / "ca.key", _key(key), 0o600)
    _write(folder / "ca.pem", made.public_bytes(Encoding.PEM), 0o644)
    return (folder, server(folder, names, now, folder, days))


def server(authority: Path, names: Sequence[str], now: float, into: Path, days: int = DAYS) -> Path:
    """A certificate for a server that is reached by these names and addresses; gives its folder, `into/server`."""
    if not names:
        raise WrongUse(
            "a server's certificate needs a name that agents reach it by", "give one with --name", code="bad-name"
        )
    alternative = [_alternative(name) for name in dict.fromkeys((*names, *LOCAL))]
    return _issue(authority, SERVER, names[0], alternative, now, days, into / SERVER)


def machine(authority: Path, name: str, now: float, into: Path, days: int = DAYS) -> Path:
    """A certificate with which an agent may speak for this machine and no other; gives its folder, `into/NAME`."""
    return _issue(authority, MACHINE, name, (), now, days, into / _file_name(name))


def client(authority: Path, name: str, now: float, into: Path, days: int = DAYS) -> Path:
    """A certificate for a person's commands, or a proxy; gives its folder, `into/NAME`."""
    return _issue(authority, CLIENT, name, (), now, days, into / _file_name(name))


def show(path: Path) -> CertificateView:
    """What the certificate in a file, or in a folder of ours, says; raises WrongUse."""
    if path.is_dir():
        inside = [path / name for name in ("cert.pem", "tls.crt", "ca.pem", "ca.crt") if (path / name).exists()]
        path = inside[0] if inside else path / "cert.pem"
    found = certificate(path)
    names, owner = [], ""
    for each in _names(found):
        if isinstance(each, x509.UniformResourceIdentifier) and each.value.startswith(SCHEME):
            kind, _, name = each.value.removeprefix(SCHEME).partition("/")
            owner = owner or f"{kind} {unquote(name)}"
        else:
            names.append(str(each.value))
    if not owner:
        owner = "authority" if found.subject == found.issuer else found.subject.rfc4514_string()
    return CertificateView(
        path, owner, tuple(names), found.issuer.rfc4514_string(), found.not_valid_before_utc.timestamp(),
        found.not_valid_after_utc.timestamp(), found.fingerprint(hashes.SHA256()).hex(),
        serial_digits(f"{found.serial_number:x}"),
    )  # fmt: skip


def uri(kind: str, name: str) -> str:
    """What a certificate calls its owner."""
    return f"{SCHEME}{kind}/{quote(name, safe='')}"


def _issue(
    authority: Path,
    kind: str,
    name: str,
    alternative: Iterable[x509.GeneralName],
    now: float,
    days: int,
    folder: Path,
) -> Path:
    if not name.strip() or not name.isprintable():
        raise WrongUse(f"{name!r} is no name", "names are printable and not empty", code="bad-name")
    above, signing = certificate(authority / "ca.pem"), signer(authority / "ca.key")
    if folder.exists():
        raise there(folder)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:COMMON_NAME])])
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri(kind, name)), *alternative])
    made = (
        builder(subject, above.subject, key, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage(_USES[kind]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(above.public_key()), critical=False)  # type: ignore[arg-type]  # the authority's key is of a kind that signs
        .sign(signing, hashes.SHA256())
    )
    return put(folder, key, made, above)


def pem(found: x509.Certificate) -> bytes:
    """A certificate as text."""
    return found.public_bytes(Encoding.PEM)


def put(
    folder: Path, key: ec.EllipticCurvePrivateKey, made: x509.Certificate, above: x509.Certificate | None = None
) -> Path:
    """Makes a folder with a certificate, its key, and the authority's where it has one; gives the folder. Raises WrongUse."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))  # nobody finds half of it under its name
    except OSError as error:
        raise WrongUse(
            f"cannot write {folder}: {error.strerror}", "name another folder", code="unwritable-file"
        ) from error
    try:
        _write(making / "key.pem", _key(key), 0o600)
        _write(making / "cert.pem", pem(made), 0o644)
        if above is not None:
            _write(making / "ca.pem", pem(above), 0o644)
        making.rename(folder)
    except OSError as error:
        shutil.rmtree(making, ignore_errors=True)
        raise WrongUse(
            f"cannot write {folder}: {error.strerror}", "name another folder", code="unwritable-file"
        ) from error
    return folder


def builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: float, days: int
) -> x509.CertificateBuilder:
    """What all certificates have: names, key, a random serial number and their dates."""
    moment = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - BEFORE)
        .not_valid_after(moment + timedelta(days=days))
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise WrongUse(
            f"{name!r} is neither an address nor a DNS name", "give one without a port", code="wrong-address"
        ) from error


def _names(found: x509.Certificate) -> Iterable[x509.GeneralName]:
    try:
        return found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()


def certificate(path: Path) -> x509.Certificate:
    """The certificate in a file; raises WrongUse."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        advice = "make an authority with `hangdog certs init`, and name it with --ca"
        raise WrongUse(f"cannot read {path}: {error.strerror}", advice, code="unreadable-file") from error
    except ValueError as error:
        raise WrongUse(
            f"{path} holds no certificate",
            "a certificate is PEM text: -----BEGIN CERTIFICATE-----",
            code="unusable-certificate",
        ) from error


def signer(path: Path) -> ec.EllipticCurvePrivateKey:
    """The key in a file that signs certificates; raises WrongUse."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        advice = "making certificates needs the authority's key"
        raise WrongUse(f"cannot read {path}: {error.strerror}", advice, code="unreadable-file") from error
    except (TypeError, ValueError) as error:
        raise WrongUse(
            f"{path} holds no readable key: {error}", "it must be PEM without a password", code="unusable-certificate"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise WrongUse(
            f"{path} is not a key from `hangdog certs init`",
            "sign with the tool that made that authority",
            code="unusable-certificate",
        )
    return key


def _key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, mode: int) -> None:
    """Writes a file that was not there, readable by its owner alone from its first moment; raises WrongUse when it was."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise there(path) from None
    except OSError as error:
        raise WrongUse(
            f"cannot write {path}: {error.strerror}", "name another folder", code="unwritable-file"
        ) from error
    with open(fd, "wb") as file:  # noqa: PTH123 - opened by descriptor
        file.write(content)
        os.fchmod(fd, mode)


def there(path: Path) -> WrongUse:
    """That something is there already."""
    advice = "hangdog overwrites nothing: make the new one elsewhere (--into, if the command has it), then move it here"
    return WrongUse(f"{path} already exists", advice, code="already-exists")


def _file_name(name: str) -> str:
    """A name as that of a folder, which leads nowhere else."""
    return quote(name, safe="@ ").lstrip(".") or "%2E"
