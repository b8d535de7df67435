"""Reads what hangdog needs to know of one X.509 certificate: serial, owner, dates, what it may be used for, and whether it ends soon."""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

#: The URI in a certificate's subject alternative name that says whose it is: `hangdog://machine/gpu-a17`.
SCHEME = "hangdog://"
#: Characters that people put between the digits of a serial number.
_BETWEEN = str.maketrans("", "", ": \t-")
#: Hexadecimal digits of a serial number: X.509 allows 20 bytes, some authorities write more.
_DIGITS = 64
#: Certificates remembered: one for each peer of a large cluster. Each request asks for its peer's.
_CACHE_SIZE = 32768


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    """One certificate. `serial` is lower-case hexadecimal; `begins` and `ends` are Unix seconds.

    `owners` are `machine gpu-a17`, `client alice` or `server head`, one for each hangdog URI. `client_auth` and
    `server_auth` say that its extended key usage names that use: a certificate without the extension has neither.
    """

    serial: str
    owners: tuple[str, ...]
    begins: float
    ends: float
    client_auth: bool
    server_auth: bool


@lru_cache(maxsize=_CACHE_SIZE)
def read_pem(pem: bytes) -> CertificateInfo:
    """Reads the first certificate of a PEM text; raises ValueError."""
    from cryptography import x509  # here: it takes 12 MiB, and nothing without TLS needs it

    return _certificate_info(x509.load_pem_x509_certificate(pem))


def read_der(der: bytes) -> CertificateInfo:
    """Reads a certificate in DER, as a TLS library gives it; raises ValueError."""
    from cryptography import x509

    return _certificate_info(x509.load_der_x509_certificate(der))


def serial_digits(written: str) -> str:
    """A serial number as `Leaf.serial` has it, from however people write it (`0A:1B`, `0x0a1b`); raises ValueError."""
    digits = written.strip().lower().removeprefix("0x").translate(_BETWEEN)
    if not digits or len(digits) > _DIGITS or not all(digit in "0123456789abcdef" for digit in digits):
        raise ValueError(f"{written[:100]!r} is no serial number in hexadecimal digits")
    return digits.lstrip("0") or "0"


def _certificate_info(found: "object") -> CertificateInfo:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    assert isinstance(found, x509.Certificate)
    try:
        uses = set(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        uses = set()
    except x509.DuplicateExtension as error:
        raise ValueError(str(error)) from error
    return CertificateInfo(
        f"{found.serial_number:x}",
        _owners(found),
        found.not_valid_before_utc.timestamp(),
        found.not_valid_after_utc.timestamp(),
        ExtendedKeyUsageOID.CLIENT_AUTH in uses,
        ExtendedKeyUsageOID.SERVER_AUTH in uses,
    )


def _owners(found: "object") -> tuple[str, ...]:
    from cryptography import x509

    assert isinstance(found, x509.Certificate)
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    owners = []
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        kind, slash, name = uri.removeprefix(SCHEME).partition("/")
        if uri.startswith(SCHEME) and slash and name:
            owners.append(f"{kind} {unquote(name)}")
    return tuple(owners)


#: Seconds before the end that people are warned: two weeks, in which somebody is there to renew it by hand.
SOON_S = 14 * 86400.0
#: The share of its life before the end, where that is less: one of a week is renewed at half of its life by itself, so a
#: quarter that is left says that it was not.
SHARE = 0.25


def ends_soon(begins: float, ends: float, now: float) -> bool:
    """Whether a certificate that lasts from `begins` to `ends` has little left, or nothing. All are Unix seconds."""
    return ends - now < min(SOON_S, SHARE * (ends - begins))
