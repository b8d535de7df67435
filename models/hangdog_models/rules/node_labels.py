"""Which labels of Kubernetes nodes name a shared fault domain, from one dated table; and those of one node."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from hangdog_models.errors import OurFault

#: The table used.
TABLE = "node_labels@2026-11"
#: What Kubernetes allows as a label's value; anything else is no label.
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
#: Values that mean "not known".
_NOTHING = frozenset({"unknown", "none", "null", "na", "n.a", "not-found"})


@dataclass(frozen=True, slots=True)
class LabelFamily:
    """Labels of one writer, narrowest first. One of `used` names the fault domain; those of `wide` only check it."""

    used: tuple[str, ...]
    wide: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """All of them."""
        return self.used + self.wide


def parse(text: str) -> tuple[LabelFamily, ...]:
    """Reads the text of a table; raises OurFault if a row is not valid."""
    try:
        rows = tomllib.loads(text)["family"]
        found = tuple(LabelFamily(tuple(row["labels"]), tuple(row.get("wide", ()))) for row in rows)
        sourced = all(str(row["source"]).strip() and row.keys() <= {"labels", "wide", "source"} for row in rows)
    except (tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError) as error:
        raise OurFault(f"table of node labels: {error}", code="damaged-rules") from error
    labels = [label for family in found for label in family.labels]
    if not sourced or len(labels) != len(set(labels)) or not all(family.used for family in found):
        raise OurFault(
            "table of node labels: a row has no label, no source, an unknown key, or another row's label",
            code="damaged-rules",
        )
    return found


@cache
def families() -> tuple[LabelFamily, ...]:
    """Those of the table that ships with hangdog."""
    return parse(resources.files(__package__).joinpath(f"{TABLE}.toml").read_text(encoding="utf-8"))


def fault_domains(labels: Mapping[str, object]) -> tuple[str, ...]:
    """The fault domains of a node by its labels, each as `label=value`, as `kubectl get nodes -l` takes it."""
    known = (label for family in families() for label in family.labels)
    return tuple(f"{label}={labels[label]}" for label in known if _tells(labels.get(label)))


def _tells(value: object) -> bool:
    return isinstance(value, str) and _VALUE.fullmatch(value) is not None and value.lower() not in _NOTHING
