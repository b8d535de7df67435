"""What the agent's tests share: a py-spy, and the promise that a test leaves no process and no thread behind."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_agent.capture import pyspy
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.doctor.doctor import Health, examine
from hangdog_models.stack import Missing
from support.fakes import targets


@pytest.fixture(scope="session")
def spy() -> pyspy.PySpy:
    """The py-spy installed here, where capture is permitted; the test is skipped with the line to change where not."""
    tool = pyspy.load()
    assert not isinstance(tool, Missing), tool
    refused = next((f for f in examine(tool=tool) if f.name == "another's process" and f.health is Health.FAIL), None)
    if refused:
        pytest.skip(f"{refused.what}: {refused.fix}")
    return tool


@pytest.fixture
def tools(spy: pyspy.PySpy) -> Tools:
    return Tools(targets.proc, spy, CaptureSettings())


@pytest.fixture(scope="session")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that puts its caller into uninterruptible sleep."""
    library = targets.holder(tmp_path_factory.mktemp("hold"))
    if library is None:
        pytest.skip("no C compiler to put a process into state D with: apt-get install gcc")
    return library


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """No thread and no child, dead or alive, is left of what a test did."""
    threads, children = set(threading.enumerate()), targets.children()
    yield
    targets.until(lambda: all(_lasting(thread) for thread in set(threading.enumerate()) - threads))
    assert targets.children().keys() <= children.keys()


def _lasting(thread: threading.Thread) -> bool:
    """gRPC starts one poller for the whole process, and keeps it."""
    return "_poll_wrapper" in thread.name
