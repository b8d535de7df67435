"""The schedulers that tests of actors run on: real ones, where they are installed."""

from collections.abc import Iterator

import pytest

from support.real import alertmanager, real_kube, slurm
from support.real.real_kube import RealKube
from support.real.slurm import Slurm


@pytest.fixture(scope="session")
def cluster() -> Iterator[Slurm]:
    """A Slurm for all tests of the session."""
    with slurm.started(3) as running:
        if running is None:
            pytest.skip(slurm.MISSING)
        yield running


@pytest.fixture(scope="session")
def alerts() -> Iterator[str]:
    """The address of an Alertmanager for all tests of the session."""
    with alertmanager.started() as address:
        if address is None:
            pytest.skip(alertmanager.MISSING)
        yield address


@pytest.fixture(scope="session")
def apiserver() -> Iterator[RealKube]:
    """A kube-apiserver for all tests of the session."""
    with real_kube.started() as running:
        if running is None:
            pytest.skip(real_kube.MISSING)
        yield running
