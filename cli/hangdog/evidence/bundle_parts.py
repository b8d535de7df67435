"""What the files of a bundle held, before it is fitted together."""

from dataclasses import dataclass, field

from hangdog.evidence.placed import Placed
from hangdog_models.snapshot import Job
from hangdog_models.stack import Frame
from hangdog_models.topology import Layout


@dataclass(slots=True)
class BundleParts:
    """Filled file by file; `size` counts their bytes. `frames` are those read so far, which equal ones share."""

    job: Job = field(default_factory=Job)
    layout: Layout = field(default_factory=Layout)
    interval_s: float | None = None
    placed: list[Placed] = field(default_factory=list)
    frames: dict[tuple[Frame, ...], tuple[Frame, ...]] = field(default_factory=dict)
    files_read: int = 0
    size: int = 0
    ignored: list[str] = field(default_factory=list)
    last_errors: dict[str, str] = field(
        default_factory=dict
    )  # by path of what is ignored, an error that no reader understands
    unreadable: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
