"""What holds for all tests."""

import signal

import pytest
from hypothesis import settings

import hangdog_agent  # noqa: F401 - before gRPC, whose handlers of forks it turns off

# Speed is measured in bench/, never by a test: on a busy machine every deadline is met by chance.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """A shell that starts the tests in its background has them ignore SIGINT, and with them all that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soak tests take hours: they run only where they are asked for by that word, though most are slow tests, too."""
    if "soak" in config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("soak")]
    items[:] = [item for item in items if not item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=long)
