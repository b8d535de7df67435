"""Reads where the copies of a job's newest checkpoint are, for the check before machines are isolated."""

from pathlib import Path

from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.planning.checkpoint import MOST, Copies, read_copies
from hangdog_server.actions.shared_disk import WITHIN_S, Disk

#: What stands for the job's name in the path.
JOB = "{job}"


class Manifests:
    """The manifest of each job. `JOB` in the path is the job's name; a path without it is one file for all jobs."""

    def __init__(self, path: str, within_s: float = WITHIN_S) -> None:
        self._path = path
        self._disk = Disk(within_s)

    async def of(self, job: str) -> Copies | None:
        """Which machines hold copies of the job's shards, as the file says now; None if there is no file.

        Raises WrongUse if the file cannot be read: then it is not known whether a shard would be lost.
        """
        if JOB in self._path and (not job or "/" in job or "\0" in job or job.startswith(".")):
            raise WrongUse(
                f"job {job[:60]!r} cannot be a file name, so nothing says who holds its checkpoint",
                "rename the job",
                code="checkpoint-copies-unknown",
            )
        path = Path(self._path.replace(JOB, job))
        try:
            return await self._disk.do(lambda: _read(path))
        except TimeoutError:
            raise WrongUse(
                f"reading {path} takes too long, so nothing says who holds the checkpoint",
                "check its disk",
                code="checkpoint-copies-unknown",
            ) from None
        except (OSError, UnicodeDecodeError, UnreadableEvidence) as error:
            what = f"cannot read {path}, so nothing says who holds the checkpoint: {error}"
            raise WrongUse(
                what,
                "let the checkpointer write it again, or remove it if copies do not matter",
                code="checkpoint-copies-unknown",
            ) from error


def _read(path: Path) -> Copies | None:
    try:
        with path.open(encoding="utf-8") as file:
            return read_copies(file.read(MOST + 1))
    except FileNotFoundError:
        return None
