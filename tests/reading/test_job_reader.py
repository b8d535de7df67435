"""`job.toml`: what it declares, and a clear word where it makes no sense."""

import pytest

from hangdog_models.errors import HangdogError, UnreadableEvidence, WrongUse
from hangdog_models.ranks import MAX_RANK
from hangdog_models.reading.job import read_interval, read_job, read_sizes
from hangdog_models.snapshot import Job
from hangdog_models.topology import Layout

WHOLE = """
[job]
id = "llama"
stalled_s = 1800
world_size = 4
framework = "Megatron"
mood = "new keys are tolerated"
[topology]
order = "tp-dp"
tp = 2
dp = 2
zz = 5
gpus_per_node = 2
[groups]
dp = ["0,2", "1,3"]
[machines]
"gpu-a" = "0-1"
"gpu-b" = "2-3"
[switches]
leaf = ["gpu-a", "gpu-b"]
[weather]
"""


def test_the_whole_of_it() -> None:
    job, layout = read_job(WHOLE)
    assert job == Job("llama", "megatron", 1800.0)
    assert (layout.world_size, layout.order, dict(layout.sizes)) == (4, ("tp", "dp"), {"tp": 2, "dp": 2})
    assert layout.ranks_per_machine == 2
    assert layout.groups == {"dp": ((0, 2), (1, 3))}
    assert layout.machines == {"gpu-a": (0, 1), "gpu-b": (2, 3)}
    assert layout.switches == {"leaf": ("gpu-a", "gpu-b")}


def test_nothing_declared() -> None:
    assert read_job("") == (Job(), Layout())


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("[job", UnreadableEvidence, "not TOML"),
        ("x = " + "[" * 5000, UnreadableEvidence, "not TOML"),
        ("job = 3", WrongUse, r"\[job\] is no table"),
        ("[job]\nid = 3", WrongUse, "id = 3 is no text"),
        ("[job]\nworld_size = 0", WrongUse, "world_size = 0 is no size"),
        ("[job]\nworld_size = true", WrongUse, "no size"),
        ("[job]\nstalled_s = -1", WrongUse, "stalled_s = -1 is no number of seconds"),
        ("[job]\nstalled_s = nan", WrongUse, "no number of seconds"),
        ("[topology]\ntp = 'eight'", WrongUse, "tp = eight is no size"),
        ("[topology]\ntp = 100000\npp = 100000", WrongUse, "make 10000000000 ranks"),
        ("[topology]\norder = 'tp-tp'", WrongUse, "no order"),
        ("[groups]\npp = '0-3'", WrongUse, "no list of rank sets"),
        ("[groups]\npp = ['0-3', '3-4']", WrongUse, "rank 3 is named twice"),
        ("[machines]\na = '0-3'\nb = '2'", WrongUse, "rank 2 is named twice"),
        ("[machines]\na = '3-x'", WrongUse, "no rank set"),
        ("[machines]\na = 3", WrongUse, "no rank set"),
        ("[switches]\nleaf = 'a'", WrongUse, "no list of machines"),
    ],
)
def test_what_makes_no_sense_is_said(text: str, error: type[HangdogError], words: str) -> None:
    with pytest.raises(error, match=words):
        read_job(text)


def test_a_hostile_file_cannot_declare_more_ranks_than_there_are() -> None:
    every = f"0-{MAX_RANK}"
    text = "[machines]\n" + "".join(f"m{number} = '{every}'\n" for number in range(50_000))
    with pytest.raises(WrongUse, match="named twice"):
        read_job(text)


def test_sizes_in_one_line() -> None:
    assert read_sizes("tp=2, dp=3,pp=1") == {"tp": 2, "dp": 3, "pp": 1}
    assert read_sizes("") == {}
    for text in ("tp", "tp=x", "tp=0", "tp=2,tp=2", "=2", "tp=99999999", "tp=1000000,dp=1000000"):
        with pytest.raises(WrongUse):
            read_sizes(text)


def test_the_interval_of_rounds() -> None:
    assert read_interval("interval_s = 0.75") == 0.75
    assert read_interval("") is None
    for text in ("interval_s = 0", "interval_s = 'x'", "interval_s = true", "interval_s = nan", "interval_s = inf"):
        with pytest.raises(WrongUse, match="no number of seconds"):
            read_interval(text)
