"""A page is made of whatever evidence is judged, also where it speaks of machines or of a job and of no rank."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hangdog.main import main
from support.real.browser import WIDE, browser, watched

pytestmark = pytest.mark.parallel  # its slow tests measure no time

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
XID = "[  100.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"
RAS = """NCCL version 2.28.9 compiled with CUDA 12.9

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING      OK
"""
WATCHDOG = (
    "[rank3]:[E1122 10:00:00.000 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds\n"
)
PLACED = '[job]\nid = "j"\n[machines]\n"a" = "0-7"\n"b" = "8-15"\n'
GROUPED = '[job]\nid = "j"\n[groups]\ntp = ["0,1", "2,3"]\n'
EMPTY = '[job]\nid = "j"\nworld_size = 0\n'
#: Small bundles: the name of each file, and what is in it.
BUNDLES: dict[str, dict[str, str]] = {
    "a kernel log": {"machine-a/dmesg.txt": XID},
    "kernel logs of two machines": {"machine-a/dmesg.txt": XID, "machine-b/dmesg.txt": XID},
    "a kernel log of a placed job": {"job.toml": PLACED, "machine-a/dmesg.txt": XID},
    "a kernel log of a job with groups": {"job.toml": GROUPED, "machine-a/dmesg.txt": XID},
    "a kernel log of a job of no ranks": {"job.toml": EMPTY, "machine-a/dmesg.txt": XID},
    "a RAS report": {"ras.txt": RAS},
    "a RAS report of a placed job": {"job.toml": PLACED, "ras.txt": RAS},
    "a log": {"train.log": WATCHDOG},
    "a log of a placed job": {"job.toml": PLACED, "train.log": WATCHDOG},
    "a failed capture": {"rank0.error.txt": "hangdog: exited: gone"},
}


def triage(bundle: Path, page: Path) -> Result:
    return CliRunner().invoke(main, ["triage", str(bundle), "--format", "json", "--html", str(page)])


def made(folder: Path, name: str) -> Path:
    bundle = folder / "bundle"
    for path, text in BUNDLES[name].items():
        (bundle / path).parent.mkdir(parents=True, exist_ok=True)
        (bundle / path).write_text(text, "utf-8")
    return bundle


@pytest.mark.parametrize("name", BUNDLES)
def test_evidence_without_a_rank_has_a_page(tmp_path: Path, name: str) -> None:
    page = tmp_path / "page.html"
    result = triage(made(tmp_path, name), page)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    assert result.exit_code in (0, 1, 2), result.output
    assert json.loads(result.stdout)["verdict"] in page.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", BUNDLES)
async def test_such_a_page_breaks_nothing_in_a_browser(tmp_path: Path, name: str) -> None:
    page = tmp_path / "page.html"
    triage(made(tmp_path, name), page)
    async with browser() as chromium, watched(chromium, WIDE) as shown:
        await shown.page.goto(page.as_uri())
        await shown.page.wait_for_selector("#headline")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the repository (../shared/corpus)")
def test_every_bundle_of_the_corpus_has_a_page(tmp_path: Path) -> None:
    bundles = sorted(path.parent for path in CORPUS.rglob("expected.toml"))
    assert len(bundles) > 50
    made_of = 0
    for bundle in bundles:
        page = tmp_path / "page.html"
        result = triage(bundle, page)
        if result.exit_code == 65:  # nothing in it can be read: there is no verdict either
            assert "[no-evidence]" in result.stderr
            continue
        assert result.exit_code in (0, 1, 2), f"{bundle}: {result.output}"
        assert page.stat().st_size > 10_000
        page.unlink()
        made_of += 1
    assert made_of >= 0.9 * len(bundles)
