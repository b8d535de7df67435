"""What the tests of the checks share: a fake NVML, compiled once, and moments to look at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_agent.checks.check_result import Moment
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.settings import CheckSettings
from support.fakes.fake_gpus import FakeGpus, built
from support.fakes.watched_gpus import SETTINGS, Watch, Watched


def _library(folder: Path, *options: str) -> Path:
    library = built(folder, *options)
    if library is None:
        pytest.skip("no C compiler to build the fake NVML with: apt-get install gcc")
    return library


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake library."""
    return _library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake library as of an older driver, which lacks a symbol."""
    return _library(tmp_path_factory.mktemp("old-nvml"), "-DOLD")


@pytest.fixture
def gpus(nvml: Path, tmp_path: Path) -> FakeGpus:
    """Two GPUs in order."""
    return FakeGpus(tmp_path / "answers", nvml)


@pytest.fixture
def clock() -> Iterator[Moment]:
    """Moments ten seconds apart, of one start of the machine."""
    return (Moment(1000.0 + 10.0 * n, 1.8e9 + 10.0 * n, "boot-1") for n in range(1_000))


@pytest.fixture
def watch(clock: Iterator[Moment]) -> Iterator[Watch]:
    """Begins to watch GPUs, which are in order unless told otherwise."""
    watched: list[Watched] = []

    def begin(
        gpus: FakeGpus, settings: CheckSettings = SETTINGS, notes: Notes | None = None, well: bool = True
    ) -> Watched:
        watched.append(Watched(gpus, clock, notes or Notes(None, "boot-1"), settings))
        if well:
            assert watched[-1].check.supported() == ""
            assert watched[-1].look() == ()
        return watched[-1]

    yield begin
    for each in watched:
        each.check.close()
