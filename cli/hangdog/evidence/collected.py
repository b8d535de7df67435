"""Takes a file of a bundle apart that a collector wrote: compressed, or with the output of several hosts or pods in it."""

from collections.abc import Iterator

from hangdog.evidence.entry import BundleEntry
from hangdog.evidence.naming import is_meaningful
from hangdog.evidence.packed.compressed import unpacked
from hangdog_models.reading.collected import by_host, exported_log
from hangdog_models.reading.limits import Limits

#: What is looked at to tell whether a file may be an export.
_HEAD = 1 << 16


def taken_apart(entry: BundleEntry, limits: Limits) -> Iterator[BundleEntry]:
    """The files inside, below the path of the one that held them; any other file as it is."""
    entry = unpacked(entry, limits)
    text = _text(entry)
    if exported_log.recognises(text[:_HEAD]):
        logs = exported_log.read(text, limits)
        for number, log in enumerate(logs):
            name = f"{log.pod or f'log-{number}'}.log"
            yield BundleEntry("/".join((entry.path, *_folder(entry, log.host), name)), log.text.encode())
        if logs:
            return
    hosts = by_host.by_host(text)
    for host, output in hosts.items():
        file = entry.path.rpartition("/")[2]
        yield BundleEntry("/".join((entry.path, *_folder(entry, host), file)), output.encode())
    if not hosts:
        yield entry


def _text(entry: BundleEntry) -> str:
    """The file as text; empty where it is none."""
    if entry.problem or b"\0" in entry.data[:_HEAD]:
        return ""
    return entry.data.decode("utf-8", "replace")


def _folder(entry: BundleEntry, host: str) -> tuple[str, ...]:
    """The folder that tells the machine, unless the file's own path tells one."""
    placed = any(is_meaningful(part) and part.startswith("machine-") for part in entry.path.split("/"))
    return (f"machine-{host}",) if host and not placed else ()
