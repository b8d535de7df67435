"""The sets of flight recorder dumps that are judged, each in one folder under the names that all analysers know, with its truth."""

import json
import pickle  # noqa: TID251  # written for analysers that read nothing else; nothing is unpickled here
import re
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hangdog_models.ranks import format_ranks, parse_ranks
from straggler_traces.dumps import write
from straggler_traces.trace import TRUTH, read

#: Steps of the published traces in their dumps: more add nothing, and one analyser takes time that grows with their square.
STEPS = 6
#: The rank at the end of a dump's name.
RANK = re.compile(r"(\d+)(?:\.\w+)?$")


@dataclass(frozen=True, slots=True)
class Recording:
    """`folder` holds `_dump_<rank>` of one moment. `bundle` is what hangdog is given: the same, or two such moments.

    `guilty` are the ranks that hold the job up; with `any_of` one of them will do, because the dumps cannot tell which.
    """

    name: str
    backend: str
    guilty: tuple[int, ...]
    folder: Path
    bundle: Path
    any_of: bool = False

    @property
    def truth(self) -> str:
        return f"{'one of ' if self.any_of else ''}{format_ranks(self.guilty)}" if self.guilty else "nobody"


def recordings(corpus: Path, scratch: Path) -> Iterator[Recording]:
    """All sets of the corpus, made ready below `scratch`."""
    for found in sorted((corpus / "nvrx").glob("*/*-asis")):
        yield _copied(found, found, f"nvrx {found.parent.name}", "nccl", scratch)
    for found in sorted((corpus / "public").glob("*/fr")):
        yield _copied(found, found.parent, found.parent.name, "nccl", scratch)
    for name, (guilty, _) in TRUTH.items() if (corpus / "straggler").is_dir() else ():
        yield _traced(corpus / "straggler", name, guilty, scratch)
    for found in sorted((corpus / "gloo").glob("*/fr")):
        yield _copied(found, found.parent, f"gloo {found.parent.name}", "gloo", scratch)


def _copied(dumps: Path, case: Path, name: str, backend: str, scratch: Path) -> Recording:
    folder = scratch / name.replace(" ", "-")
    folder.mkdir()
    for path in dumps.iterdir():
        found = RANK.search(path.name)
        if found is None or path.suffix == ".toml":
            continue
        target = folder / f"_dump_{found[1]}"
        if path.suffix == ".json":
            target.write_bytes(_pickled(json.loads(path.read_bytes())))
        else:
            shutil.copyfile(path, target)
    expected = tomllib.loads((case / "expected.toml").read_text(encoding="utf-8"))
    any_of = "must_include_any_ranks" in expected
    ranks = expected.get("must_include_any_ranks" if any_of else "must_include_ranks", "")
    return Recording(name, backend, parse_ranks(ranks) if ranks else (), folder, folder, any_of)


def _traced(traces: Path, name: str, guilty: tuple[int, ...], scratch: Path) -> Recording:
    """A slow job: it takes two moments to see that it moves. The other analysers read one, and get the second one."""
    bundle, folder = scratch / f"trace-{name}-rounds", scratch / f"trace-{name}"
    write(read(traces, name), bundle, steps=STEPS)
    folder.mkdir()
    for path in (bundle / "round-1").iterdir():
        (folder / f"_dump_{path.stem.removeprefix('rank')}").write_bytes(_pickled(json.loads(path.read_bytes())))
    return Recording(f"trace {name}", "nccl", guilty, folder, bundle)


def _pickled(document: dict[str, object]) -> bytes:
    """A dump as the recorder pickles it: there the numbers of `pg_status` are no texts."""
    status = document.get("pg_status")
    if isinstance(status, dict):
        numbers = {group: {key: int(value) for key, value in counts.items()} for group, counts in status.items()}
        document = document | {"pg_status": numbers}
    return pickle.dumps(document)
