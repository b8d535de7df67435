"""The border between the wire's owners and our noun; an owner that makes no sense is an unknown one."""

from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_proto.generated import hangdog_pb2 as pb

#: Characters of an owner's id: the number of a Slurm job or a user has ten.
ID = 20


def pack(owner: Owner) -> pb.Owner | None:
    """Writes an owner; None for an unknown one, which is absent on the wire."""
    return pb.Owner(kind=owner.kind, id=owner.id, uid=owner.uid or 0) if owner.known else None


def unpack(
    message: pb.LocalJob | pb.JobSigns | pb.SlowJob | pb.JobPace | pb.JobCommunicators | pb.CaptureOrder | pb.Recheck,
) -> Owner:
    """Reads the owner of what is said; whoever tells a kind or an id that is none told nothing."""
    if not message.HasField("owner"):
        return UNKNOWN
    owner = message.owner
    known = owner.kind in (OwnerKind.SLURM, OwnerKind.PODS, OwnerKind.USER)
    numbered = owner.id.isascii() and owner.id.isdigit() and len(owner.id) <= ID
    if not known or not numbered or (owner.kind != OwnerKind.SLURM and owner.id != str(owner.uid)):
        return UNKNOWN
    return Owner(OwnerKind(owner.kind), owner.id, owner.uid)
