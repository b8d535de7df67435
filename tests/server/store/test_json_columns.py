"""What the store's JSON columns hold is read back as it was written, whatever foreign evidence puts into it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.incident import Incident
from hangdog_server.store import json_columns
from hangdog_server.store.json_columns import NoNumber
from hangdog_server.store.store import Store

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec=None), max_size=20)  # lone surrogates and NUL, too
VALUES = st.recursive(SCALARS | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=10)


@given(VALUES)
def test_a_value_is_read_back_as_the_standard_library_would(value: object) -> None:
    written = json_columns.write(value)
    assert json_columns.read(written) == json.loads(json.dumps(value)) == json_columns.read(json.dumps(value))


def test_a_text_of_an_older_store_is_read() -> None:
    assert json_columns.read('{"asked": "\\ud800", "spent": Infinity}') == {"asked": "\ud800", "spent": float("inf")}


@pytest.mark.parametrize("text", ["", "{", '{"asked": }', "nothing"])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        json_columns.read(text)


@pytest.mark.parametrize("spent", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("words", ["plain", "\ud800"], ids=["by msgspec", "by the standard library"])
async def test_a_number_that_is_none_is_refused_by_name_and_nothing_is_stored(
    where: Path | str, spent: float, words: str
) -> None:
    store = Store(where)
    asked: dict[str, Any] = {"why": words, "world_size": None, "looks": [{"spent_s": 1.0}, {"spent_s": spent}]}
    with pytest.raises(NoNumber, match=rf"looks\.1\.spent_s is {spent}"):
        await store.begin(Incident("0a", "llama", 1.0), asked)
    assert await store.latest("", 9) == ()
    asked["looks"][1]["spent_s"] = 1e300
    await store.begin(Incident("0a", "llama", 1.0), asked)
    assert (await store.recall("0a"))[0] == asked
    store.close()
