"""Signs short-lived certificates of machines for agents that are authenticated already, with an authority of its own.

That authority is not the cluster's: the server alone believes it, and it is constrained to certificates of machines. Who
steals its key can speak for machines, and cannot play the server, a person or a proxy.

`Issuer.sign` does not ask how the machine was authenticated: its caller has to have done that. Today that is the machine's
present certificate. A one-time token for its first one would be another caller.
"""

import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hangdog_models.errors import WrongUse
from hangdog_proto import x509 as leaf
from hangdog_proto.client import certificate_folder
from hangdog_server.auth import certificates
from hangdog_server.auth.tls import MACHINE, day

#: How long a certificate lasts that a server signs. It is renewed after half of that, so a server may be away for three
#: days, a long weekend, before the first agent is locked out; a stolen one is worth a week at most.
LIFE_DAYS = 7.0
#: Bytes of a request: one with a key on P-256 has some 400.
_MOST = 4096


#: What an issuer's certificates may be about: the host of `hangdog://machine/NAME` is `machine`.
_MACHINES_ALONE = x509.NameConstraints(
    permitted_subtrees=[x509.UniformResourceIdentifier(MACHINE)],
    excluded_subtrees=[
        x509.DNSName(""),
        x509.IPAddress(ipaddress.ip_network("0.0.0.0/0")),
        x509.IPAddress(ipaddress.ip_network("::/0")),
    ],
)


def make(folder: Path, now: float, days: int = certificates.AUTHORITY_DAYS) -> Path:
    """Makes an authority that a server signs certificates of machines with, and nothing else; gives its folder.

    Nobody but the server believes it. Constraints in its own certificate hold it to URIs of machines, without DNS names
    and addresses, and to client authentication. Raises WrongUse.
    """
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hangdog issuer of machines' certificates")])
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        key_cert_sign=True, crl_sign=False, digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        certificates.builder(subject, subject, key, now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(_MACHINES_ALONE, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    if folder.exists():
        raise certificates.there(folder)
    return certificates.put(folder, key, made)


def constrained(found: x509.Certificate) -> bool:
    """Whether an authority can sign certificates of machines alone, as `make` makes them."""
    try:
        extensions = found.extensions
        authority = extensions.get_extension_for_class(x509.BasicConstraints).value
        names = extensions.get_extension_for_class(x509.NameConstraints)
        uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False
    alone = names.critical and names.value == _MACHINES_ALONE and list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    return alone and authority.ca and authority.path_length == 0


class Issuer:
    """The authority in a folder from `hangdog certs issuer`."""

    def __init__(self, folder: Path, clock: Callable[[], float], life_days: float = LIFE_DAYS) -> None:
        """Reads it; raises WrongUse when it is not there, is no authority of `certs issuer`, or has ended."""
        path = certificate_folder.paths(folder)[1]
        self._above = certificates.certificate(path)
        self._key = certificates.signer(path.with_name("key.pem"))
        self._clock = clock
        self.life_s = life_days * 86400.0
        self.certificate = path.read_bytes()
        self.begins = self._above.not_valid_before_utc.timestamp()
        self.ends = self._above.not_valid_after_utc.timestamp()
        advice = "hangdog certs issuer makes one"
        if not constrained(self._above):
            raise WrongUse(f"{path} can sign more than certificates of machines", advice, code="wrong-authority")
        if self._above.public_key() != self._key.public_key():
            raise WrongUse(f"{path} belongs to another key than the one beside it", advice, code="unusable-certificate")
        if self.ends <= clock():
            raise WrongUse(f"the authority in {folder} expired on {day(self.ends)}", advice, code="expired-certificate")

    def sign(self, request: bytes, machine: str) -> bytes:
        """A certificate (PEM) for a machine whose agent the caller has authenticated; raises WrongUse.

        Of the request only its public key counts: which name it asks for, and with which extensions, is not looked at.
        """
        key = _public(request)
        now = self._clock()
        ends = min(now + self.life_s, self.ends)
        name = x509.NameAttribute(NameOID.COMMON_NAME, machine[: certificates.COMMON_NAME])
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=False, crl_sign=False, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        owner = x509.UniformResourceIdentifier(certificates.uri(MACHINE, machine))
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([name]))
            .issuer_name(self._above.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.fromtimestamp(now, UTC) - certificates.BEFORE)
            .not_valid_after(datetime.fromtimestamp(now, UTC) + timedelta(seconds=ends - now))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectAlternativeName([owner]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificates.pem(made)

    def renew_in_s(self, shown: leaf.CertificateInfo) -> float:
        """Seconds until half of what a certificate lasts has passed; 0 when it has."""
        made = shown.begins + certificates.BEFORE.total_seconds()
        half = made + max(shown.ends - made, 0.0) / 2
        return max(half - self._clock(), 0.0)


def _public(request: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a request that proves to hold it; raises WrongUse."""
    advice = "is its agent of another version?"
    if len(request) > _MOST:
        raise WrongUse(
            f"a request for a certificate of {len(request)} bytes is too long", advice, code="wrong-certificate-request"
        )
    try:
        found = x509.load_pem_x509_csr(request)
        key, proved = found.public_key(), found.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise WrongUse(
            f"the request for a certificate cannot be read: {error}", advice, code="wrong-certificate-request"
        ) from error
    if not proved:
        raise WrongUse(
            "the request for a certificate is not signed with its own key", advice, code="wrong-certificate-request"
        )
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise WrongUse(
            "the request for a certificate is for a key on another curve than P-256",
            advice,
            code="wrong-certificate-request",
        )
    return key
