"""What the store's JSON columns hold is read back as it was written, whatever foreign evidence puts into it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_server import json_columns

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
