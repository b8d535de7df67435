"""What these tests share: a cluster with an authority of its own."""

from pathlib import Path

import pytest

from support.servers import guarded


@pytest.fixture
def cluster(tmp_path: Path) -> guarded.Cluster:
    return guarded.made(tmp_path / "ca")
