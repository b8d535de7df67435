"""How long this machine's own certificate lasts, for the log, for metrics and for `hangdog doctor`."""

from datetime import UTC, datetime
from pathlib import Path

from hangdog_agent.doctor_finding import DoctorFinding, Health
from hangdog_models.errors import WrongUse
from hangdog_proto import x509
from hangdog_proto.client import certificate_folder
from hangdog_proto.x509 import CertificateInfo, ends_soon


def shown(folder: Path, renewed: Path | None) -> CertificateInfo | None:
    """What the certificate says that the agent shows; None where it has none. Raises WrongUse where it cannot be read."""
    found = certificate_folder.read(folder, certificate_folder.newest(folder, renewed))
    try:
        return x509.read_pem(found.certificate) if found.certificate else None
    except ValueError as error:
        raise WrongUse(
            f"the certificate in {folder} cannot be read: {error}",
            "hangdog certs show DIR",
            code="unusable-certificate",
        ) from error


def warning(own: CertificateInfo, now: float) -> str:
    """What to say of a certificate that has little left, or nothing; empty of another. `now` is Unix time."""
    if not ends_soon(own.begins, own.ends, now):
        return ""
    day = datetime.fromtimestamp(own.ends, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"this machine's certificate {'ended' if own.ends <= now else 'ends'} on {day}"


def examined(folder: Path, renewed: Path | None, now: float) -> DoctorFinding:
    """What `hangdog doctor` says of it; `now` is Unix time."""
    try:
        own = shown(folder, renewed)
    except WrongUse as error:
        return DoctorFinding("certificate", Health.WARN, str(error), error.hint)
    if own is None:
        return DoctorFinding(
            "certificate", Health.WARN, f"{folder} holds none", "hangdog certs machine; docs/security.md"
        )
    whose = ", ".join(own.owners) or "nobody: it holds no hangdog:// URI"
    if stated := warning(own, now):
        return DoctorFinding(
            "certificate", Health.WARN, f"{whose}; {stated}", "hangdog certs machine NAME --into new; docs/security.md"
        )
    if not own.client_auth or not any(owner.startswith("machine ") for owner in own.owners):
        what = f"{whose}; no server takes it for a machine's"
        return DoctorFinding("certificate", Health.WARN, what, "hangdog certs machine NAME; docs/security.md")
    left = (own.ends - now) / 86400
    return DoctorFinding("certificate", Health.OK, f"{whose}, {left:.0f} days left")
