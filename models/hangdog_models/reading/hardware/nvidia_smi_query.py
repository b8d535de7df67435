"""Takes the output of `nvidia-smi -q` apart, text and XML alike: for each GPU its values by their place in the sections."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from xml.parsers import expat

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.dates import written_out
from hangdog_models.reading.hardware.pci import canonical
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import lines_of

#: GPUs of one machine; the largest known has 16, the rest leaves room for MIG listings.
MOST_GPUS = 256
#: Values of one GPU; driver 580 prints about 350, and 90 for each MIG device.
_MOST_VALUES = 4_000
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?)")

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: `values[("remapped_rows", "pending")] == "No"`, names as XML and text share them after `name_of`."""

    device: str
    values: Mapping[Path, str]

    def get(self, section: str, *ends: str) -> Iterator[str]:
        """The values in a section (at any depth) whose name ends like this."""
        for path, value in self.values.items():
            if path[-1].endswith(ends) and section in path:
                yield value

    def exactly(self, section: str, *names: str) -> Iterator[str]:
        """The values in a section (at any depth) of one of these names."""
        for path, value in self.values.items():
            if path[-1] in names and section in path:
                yield value


@dataclass(frozen=True, slots=True)
class Query:
    """What one run printed; `attached` is the number of GPUs it says there are, which a cut output lists in part only."""

    gpus: tuple[Gpu, ...]
    attached: int | None = None
    at_s: float | None = None
    driver: str = ""


def name_of(text: str) -> str:
    """`HW Power Brake Slowdown` as XML writes it: `hw_power_brake_slowdown`."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def from_text(text: str, limits: Limits = DEFAULTS) -> Query:
    """Reads the text of `nvidia-smi -q`, whole or cut off anywhere; lines deeper indented belong to the line above."""
    gpus: list[tuple[str, dict[Path, str]]] = []
    top: dict[Path, str] = {}
    values = top
    above: list[tuple[int, str]] = []
    # A last line that does not end may be cut within its value: `Succ` would be no success.
    for line in lines_of(text[: text.rfind("\n") + 1]):
        body = line.strip()
        if header := _GPU.fullmatch(body):
            _check(len(gpus) + 1, 0)
            values = {}
            gpus.append((canonical(header[1]), values))
            above = []
            continue
        key, sign, value = body.partition(" : ")
        indent = len(line) - len(line.lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        if len(above) < limits.depth:
            above.append((indent, name_of(key.removesuffix(" :"))))
        if sign:
            _check(0, len(values) + 1)
            values[tuple(name for _, name in above)] = text_of(value.strip(), limits)
    return _query(gpus, top)


def from_xml(text: str, limits: Limits = DEFAULTS) -> Query:
    """Reads the XML of `nvidia-smi -q -x`, whole or cut off anywhere; raises UnreadableEvidence on what is no such XML.

    Nothing is fetched (the document type names a file), and a document that declares entities is refused.
    """
    tree = _Tree(limits)
    parser = expat.ParserCreate()
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.StartElementHandler = tree.start
    parser.EndElementHandler = tree.end
    parser.CharacterDataHandler = tree.characters
    parser.EntityDeclHandler = tree.entity
    try:
        parser.Parse(text.lstrip(), False)  # not the final piece: an output that ends early is still read
    except expat.ExpatError as error:
        raise UnreadableEvidence(f"not XML: {error}", code="damaged-gpu-report") from error
    except ValueError as error:  # lone surrogates
        raise UnreadableEvidence(f"not XML: {error}", code="damaged-gpu-report") from error
    if not tree.rooted:
        raise UnreadableEvidence("not the XML of nvidia-smi: its root is not nvidia_smi_log", code="damaged-gpu-report")
    return _query(tree.gpus, tree.top)


class _Tree:
    """Collects the leaves below each <gpu>, and those beside them."""

    def __init__(self, limits: Limits) -> None:
        self.gpus: list[tuple[str, dict[Path, str]]] = []
        self.top: dict[Path, str] = {}
        self.rooted = False
        self._limits = limits
        self._path: list[str] = []
        self._text = ""
        self._elements = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._elements += 1
        if self._elements > self._limits.containers:
            raise UnreadableEvidence(
                f"more than {self._limits.containers} elements (limit containers)", code="too-many"
            )
        if len(self._path) >= self._limits.depth:
            raise UnreadableEvidence(f"nested deeper than {self._limits.depth} levels (limit depth)", code="too-deep")
        if not self._path:
            self.rooted = tag == "nvidia_smi_log"
        if tag == "gpu" and len(self._path) == 1:
            _check(len(self.gpus) + 1, 0)
            self.gpus.append((canonical(text_of(attributes.get("id"), self._limits)), {}))
        self._path.append(name_of(tag))
        self._text = ""

    def end(self, _tag: str) -> None:
        inside = self._path[1:2] == ["gpu"] and self.gpus
        values = self.gpus[-1][1] if inside else self.top
        place = tuple(self._path[2 if inside else 1 :])
        if place and self._text.strip():
            _check(0, len(values) + 1)
            values[place] = text_of(self._text.strip(), self._limits)
        self._path.pop()
        self._text = ""

    def characters(self, text: str) -> None:
        if len(self._text) < self._limits.text:
            self._text += text

    def entity(self, name: str, *_: object) -> None:
        raise UnreadableEvidence(
            f"XML that declares an entity ({text_of(name, self._limits)[:40]}) is not read", code="unsafe-content"
        )


def _query(gpus: list[tuple[str, dict[Path, str]]], top: Mapping[Path, str]) -> Query:
    by_name = {path[-1]: value for path, value in top.items()}
    return Query(
        tuple(Gpu(device, values) for device, values in gpus),
        int_of(by_name.get("attached_gpus")),
        written_out(by_name.get("timestamp", "")),
        by_name.get("driver_version", ""),
    )


def _check(gpus: int, values: int) -> None:
    if gpus > MOST_GPUS:
        raise UnreadableEvidence(f"more than {MOST_GPUS} GPUs of one machine", code="too-many")
    if values > _MOST_VALUES:
        raise UnreadableEvidence(f"more than {_MOST_VALUES} values of one GPU", code="too-many")
