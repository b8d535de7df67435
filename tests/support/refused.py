"""That an error is the one that is expected: by its class and its code, which stay when its words change."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hangdog_models.errors import HangdogError


@contextmanager
def refused(
    code: str, kind: type[HangdogError] = HangdogError, *values: str
) -> Iterator[pytest.ExceptionInfo[HangdogError]]:
    """Passes where an error of that code and class is raised, whose text names each of the `values`."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value} [{caught.value.code}]"
    for value in values:
        assert value in str(caught.value)
