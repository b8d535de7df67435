"""`job.toml`: what it declares, and a clear word where it makes no sense."""

import pytest

from hangdog_models.errors import HangdogError, UnreadableEvidence, WrongUse
from hangdog_models.ranks import MAX_RANK
from hangdog_models.reading.job import read_interval, read_job, read_sizes
from hangdog_models.snapshot import Job
from hangdog_models.topology import Layout
from support.refused import refused

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
    ("text", "error", "code", "value"),
    [
        ("[job", UnreadableEvidence, "damaged-toml", ""),
        ("x = " + "[" * 5000, UnreadableEvidence, "damaged-toml", ""),
        ("job = 3", WrongUse, "wrong-setting", "[job]"),
        ("[job]\nid = 3", WrongUse, "wrong-setting", "id = 3"),
        ("[job]\nworld_size = 0", WrongUse, "bad-parallel-sizes", "world_size = 0"),
        ("[job]\nworld_size = true", WrongUse, "bad-parallel-sizes", "world_size"),
        ("[job]\nstalled_s = -1", WrongUse, "wrong-setting", "stalled_s = -1"),
        ("[job]\nstalled_s = nan", WrongUse, "wrong-setting", "stalled_s = nan"),
        ("[topology]\ntp = 'eight'", WrongUse, "bad-parallel-sizes", "tp = eight"),
        ("[topology]\ntp = 100000\npp = 100000", WrongUse, "too-many", "10000000000 ranks"),
        ("[topology]\norder = 'tp-tp'", WrongUse, "bad-dimension-order", "'tp-tp'"),
        ("[groups]\npp = '0-3'", WrongUse, "bad-rank-set", "'0-3'"),
        ("[groups]\npp = ['0-3', '3-4']", WrongUse, "named-twice", "rank 3"),
        ("[machines]\na = '0-3'\nb = '2'", WrongUse, "named-twice", "rank 2"),
        ("[machines]\na = '3-x'", WrongUse, "bad-rank-set", "'3-x'"),
        ("[machines]\na = 3", WrongUse, "bad-rank-set", "'3'"),
        ("[switches]\nleaf = 'a'", WrongUse, "wrong-setting", "'leaf'"),
    ],
)
def test_what_makes_no_sense_is_said(text: str, error: type[HangdogError], code: str, value: str) -> None:
    with refused(code, error, value):
        read_job(text)


def test_a_hostile_file_cannot_declare_more_ranks_than_there_are() -> None:
    every = f"0-{MAX_RANK}"
    text = "[machines]\n" + "".join(f"m{number} = '{every}'\n" for number in range(50_000))
    with refused("named-twice", WrongUse):
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
        with refused("wrong-setting", WrongUse, "interval_s"):
            read_interval(text)
