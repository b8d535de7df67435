"""A real FSDP job whose ranks are killed with the holders of one machine, of a parallel group, and of both copies of a shard."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parallel,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: make torch"),
]


@pytest.fixture(scope="module")
def losses() -> dict[str, Any]:
    """What each loss led to, as the benchmark tells."""
    call = [sys.executable, str(ROOT / "bench/memory_backups"), "--mib", "48", "--format", "json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {one["lost"]: one for one in json.loads(done.stdout)}


@pytest.mark.parametrize("lost", ["one machine", "two machines of one group"])
def test_the_state_comes_back_bit_for_bit_where_one_copy_is_left(losses: dict[str, Any], lost: str) -> None:
    found = losses[lost]
    assert found["kept"], found["problem"]
    assert found["steps"] == [7] * 8 and found["equal"], found["problem"]


def test_without_both_copies_all_load_from_storage_and_the_state_is_untouched(losses: dict[str, Any]) -> None:
    found = losses["two machines with both copies"]
    assert found["kept"] and found["steps"] == [None] * 8 and found["untouched"] and found["from_disk"]
    assert re.search(r"\bfrom storage: step 7: no machine .*\branks 0-1,6-7\b", found["problem"])
