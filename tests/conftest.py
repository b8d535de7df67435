"""What holds for all tests, and how many workers run them."""

import gc
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import hangdog_agent  # noqa: F401 - before gRPC, whose handlers of forks it turns off

# Speed is measured in bench/, never by a test: on a busy machine every deadline is met by chance.
settings.register_profile("unhurried", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)  # `make laws`
settings.load_profile("unhurried")

# httpcore looks for it at each request, in every folder of the path: that it is not there is remembered.
if importlib.util.find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

#: A core has work for two: the tests wait three quarters of their time, for processes, sockets and clocks.
WORKERS_OF_A_CORE = 2
#: From here on, what each worker needs to begin is more than it spares.
MOST_WORKERS = 16


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many `-n auto` are: none of their own for a few tests, which would wait for them, and for slow ones that are timed."""
    named = [Path(one.partition("::")[0]) for one in config.option.file_or_dir]
    few = config.option.keyword or (named and all(path.is_file() for path in named))
    if few or config.option.markexpr not in ("not slow", "slow and parallel", "hypothesis"):
        return 0
    return min(WORKERS_OF_A_CORE * len(os.sched_getaffinity(0)), MOST_WORKERS)


@pytest.fixture(scope="session", autouse=True)
def tables_made_once() -> Iterator[None]:
    """The first new store of this process is migrated; the others copy its tables."""
    if "hangdog_server.store.database" not in sys.modules:  # no test that was collected opens a store
        yield
        return
    from support.cases.new_stores import copied

    with copied():
        yield


def pytest_configure() -> None:
    """A shell that starts the tests in its background has them ignore SIGINT, and with them all that they start.

    What collecting makes stays to the end: nothing of it is garbage, and looking takes a quarter of the time.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soak tests take hours: they run only where they are asked for by that word, though most are slow tests, too."""
    if "soak" in config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("soak")]
    items[:] = [item for item in items if not item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=long)
