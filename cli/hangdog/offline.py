"""Judges evidence bundles offline: the public Python API behind `hangdog triage`."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from hangdog.evidence import open_bundle
from hangdog_models import topology
from hangdog_models.diagnosis.judge import investigate
from hangdog_models.diagnosis.options import Options
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.conclude import conclude
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.verdict import Verdict

BundlePath = str | PathLike[str]

_OPTIONS = Options()


def triage(
    path: BundlePath | Sequence[BundlePath],
    options: Options = _OPTIONS,
    limits: Limits = DEFAULTS,
    progress: open_bundle.Progress | None = None,
    stalled_s: float | None = None,
) -> Verdict:
    """The verdict on the bundle at `path`: a directory, a `.zip` or a `.tar.gz`.

    `progress` is called with the number of files read and in all (0: not known). `stalled_s`: for how many seconds nothing
    had been seen to move; it counts before what `job.toml` says.
    Raises WrongUse when nothing is there, UnreadableBundle when nothing in it is evidence.
    """
    return conclude(open_case(path, options, limits, progress, stalled_s))


def open_case(
    path: BundlePath | Sequence[BundlePath],
    options: Options = _OPTIONS,
    limits: Limits = DEFAULTS,
    progress: open_bundle.Progress | None = None,
    stalled_s: float | None = None,
    remarks: Sequence[str] = (),
) -> Case:
    """Everything that the verdict on the bundle at `path` is drawn from; raises what `triage` raises.

    `remarks` of the collector become notes of the verdict.
    """
    paths = [Path(path)] if isinstance(path, str | PathLike) else [Path(one) for one in path]
    snapshot, layout = (
        open_bundle.open_bundle(paths[0], limits, progress, stalled_s)
        if len(paths) == 1
        else open_bundle.open_bundles(paths, limits, progress, stalled_s)
    )
    shape, notes = topology.build(layout, snapshot.highest_rank())
    account = replace(snapshot.account, notes=(*remarks, *snapshot.account.notes, *notes))
    return investigate(replace(snapshot, account=account), shape, options)
