"""Two hundred clean runs of each level, on a machine that has other work too: none of them may convict anybody."""

import pytest

from clean import Row, measure
from hangdog_agent.machine_tests.level_runner import LadderOutcome
from hangdog_agent.machine_tests.standard_levels import LEVELS

RUNS = 200


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("level", LEVELS)
def test_clean_runs_convict_nobody(level: int) -> None:
    rows = {level: Row()}
    measure(RUNS, rows)
    verdicts = rows[level].verdicts
    print(f"level {level}: {dict(verdicts)}")
    assert verdicts.total() == RUNS
    assert not verdicts[LadderOutcome.CONVICTED] and not verdicts[LadderOutcome.FAILED]
