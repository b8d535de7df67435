"""Reads what a platform says of where the copies of a job's newest checkpoint lie, for the gate before machines are taken."""

from pathlib import Path

from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.planning.checkpoint import MOST, Copies, read_copies
from hangdog_server.actions.shared_disk import WITHIN_S, Disk

#: What stands for the job's name in the path.
JOB = "{job}"


class Manifests:
    """The file of each job, `JOB` in its path being the job's name; one file for all jobs where its path has none."""

    def __init__(self, path: str, within_s: float = WITHIN_S) -> None:
        self._path = path
        self._disk = Disk(within_s)

    async def of(self, job: str) -> Copies | None:
        """Who holds copies of the job's shards, as the file says now; None where there is none, and nobody says.

        Raises WrongUse where there is one that cannot be read: what it would say is not known, and not that nothing is lost.
        """
        if JOB in self._path and (not job or "/" in job or "\0" in job or job.startswith(".")):
            raise WrongUse(
                f"{job[:60]!r} is no name of a file: who holds its checkpoint is not known", "rename the job"
            )
        path = Path(self._path.replace(JOB, job))
        try:
            return await self._disk.do(lambda: _read(path))
        except TimeoutError:
            raise WrongUse(
                f"{path} does not answer: who holds the checkpoint is not known", "is its disk there?"
            ) from None
        except (OSError, UnicodeDecodeError, UnreadableEvidence) as error:
            what = f"cannot read {path}, who holds the checkpoint is not known: {error}"
            raise WrongUse(
                what, "have the checkpointer write it anew, or remove it where copies do not matter"
            ) from error


def _read(path: Path) -> Copies | None:
    try:
        with path.open(encoding="utf-8") as file:
            return read_copies(file.read(MOST + 1))
    except FileNotFoundError:
        return None
