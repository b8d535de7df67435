"""Takes the output of `amd-smi` and `rocm-smi` apart, text, CSV and JSON: for each GPU its values by their place in the sections."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.hardware.nvidia_smi_query import Gpu, Path, name_of
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import lines_of

#: GPUs of one machine: the largest has 8, each of which may be split into 8 partitions that are listed as GPUs.
_MOST_GPUS = 256
#: Values of one GPU; ROCm 7 prints about 400 of an MI300X.
_MOST_VALUES = 8_000
_GPU = re.compile(r"GPU: (\d{1,4})\s{0,8}")
#: `GPU[0]:         RAS INFO`, and below it `UMC   ENABLED   0   0`; a block without counters has its status only.
_OLD_GPU = re.compile(r"GPU\[(\d{1,4})\]\s{0,16}:\s{0,16}([^\r\n]{0,400})")
_RAS = re.compile(
    r"\s{1,40}([A-Z][A-Z0-9_]{1,20})\s{1,20}(ENABLED|DISABLED)(?:\s{1,30}(\d{1,12})\s{1,30}(\d{1,12}))?\s{0,8}"
)
#: A row of `amd-smi xgmi --link-status`: `GPU0   0000:0c:00.0   U U X D`.
_LINKS = re.compile(r"\s{0,16}GPU(\d{1,4})\s{1,16}([0-9a-f:.]{7,16})((?:\s{1,8}[UDX]){2,32})\s{0,16}")
_CARD = re.compile(r"card(\d{1,4})")


def from_text(text: str, limits: Limits = DEFAULTS) -> tuple[Gpu, ...]:
    """Reads the text of either tool, whole or cut off anywhere; lines deeper indented belong to the line above."""
    found: dict[str, dict[Path, str]] = {}
    values: dict[Path, str] | None = None
    above: list[tuple[int, str]] = []
    for line in lines_of(text[: text.rfind("\n") + 1]):  # a last line that does not end may be cut within its value
        body = line.strip()
        if new := _GPU.fullmatch(body):
            values, above = _of(found, new[1]), []
        elif old := _OLD_GPU.match(body):
            values, above = _of(found, old[1]), []
            key, sign, value = old[2].rpartition(": ")
            if sign:
                _put(values, (name_of(key),), value, limits)
        elif links := _LINKS.fullmatch(line):
            _put(_of(found, links[1]), ("link_status",), links[3], limits)
        elif values is not None and (block := _RAS.fullmatch(line)):
            if block[2] == "ENABLED" and block[4]:  # what is disabled may bear any number
                _put(values, ("ecc_blocks", name_of(block[1]), "uncorrectable_count"), block[4], limits)
        elif values is not None and body:
            _indented(values, above, line, limits)
    return _gpus(found)


def from_csv(text: str, limits: Limits = DEFAULTS) -> tuple[Gpu, ...]:
    """Reads the CSV of `amd-smi`: a line of names, and one for each GPU."""
    found: dict[str, dict[Path, str]] = {}
    rows = csv.reader(line[: limits.text * 16] for line in lines_of(text) if line.strip())
    try:
        names = [name_of(name) for name in next(rows, [])]
        for row in rows:
            number = int_of(row[0]) if row else None
            if number is not None:
                values = _of(found, str(number))
                for name, value in zip(names[1:], row[1:], strict=False):
                    _put(values, (name,), value, limits)
    except csv.Error as error:
        raise UnreadableEvidence(f"not CSV: {error}", code="damaged-gpu-report") from error
    return _gpus(found)


def from_json(document: object, limits: Limits = DEFAULTS) -> tuple[Gpu, ...]:
    """Reads the JSON of either tool: a list of GPUs, which newer ones put under `gpu_data`, or one object for each card."""
    found: dict[str, dict[Path, str]] = {}
    for number, item in _items(document):
        values = _of(found, number)
        for path, value in _leaves(item, ()):
            _put(values, path, value, limits)
    return _gpus(found)


def is_json(document: object) -> bool:
    """Whether a JSON document has the shape of one of these."""
    return any(True for _ in _items(document))


def _items(document: object) -> Iterator[tuple[str, Mapping[object, object]]]:
    if isinstance(document, dict):
        for key, value in document.items():
            if isinstance(value, dict) and isinstance(key, str) and (card := _CARD.fullmatch(key)):
                yield card[1], value
        document = document.get("gpu_data")
    if isinstance(document, list):
        for item in document:
            number = int_of(item.get("gpu")) if isinstance(item, dict) else None
            if isinstance(item, dict) and number is not None and 0 <= number <= 9_999:
                yield str(number), item


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """The values below; `{"value": 41, "unit": "W"}` is one, and so is a list of plain ones."""
    if isinstance(value, dict):
        if "value" in value and "unit" in value:
            yield path, str(value["value"])[:64]
            return
        for key, inside in value.items():
            yield from _leaves(inside, (*path, name_of(str(key)[:200])))
    elif isinstance(value, list):
        plain = [str(item)[:64] for item in value[:256] if not isinstance(item, dict | list)]
        if plain:
            yield path, " ".join(plain)
        for item in value[:256]:
            if isinstance(item, dict):
                yield from _leaves(item, path)
    elif value is not None:
        yield path, str(value)[:400]


def _indented(values: dict[Path, str], above: list[tuple[int, str]], line: str, limits: Limits) -> None:
    key, sign, value = line.strip().partition(":")
    indent = len(line) - len(line.lstrip())
    while above and above[-1][0] >= indent:
        above.pop()
    if sign and len(above) < limits.depth:
        above.append((indent, name_of(key[:200])))
        if value.strip():
            _put(values, tuple(name for _, name in above), value, limits)


def _of(found: dict[str, dict[Path, str]], number: str) -> dict[Path, str]:
    if number not in found and len(found) >= _MOST_GPUS:
        raise UnreadableEvidence(f"more than {_MOST_GPUS} GPUs of one machine", code="too-many")
    return found.setdefault(number, {})


def _put(values: dict[Path, str], path: Path, value: str, limits: Limits) -> None:
    if len(values) >= _MOST_VALUES:
        raise UnreadableEvidence(f"more than {_MOST_VALUES} values of one GPU", code="too-many")
    values[path] = text_of(value.strip(), limits)


def _gpus(found: Mapping[str, Mapping[Path, str]]) -> tuple[Gpu, ...]:
    return tuple(Gpu(number, values) for number, values in found.items())


def numbers(values: Iterable[str]) -> list[int]:
    """The values that are whole numbers; the tools write `N/A` for what they do not know."""
    return [number for value in values if (number := int_of(value.strip())) is not None]
