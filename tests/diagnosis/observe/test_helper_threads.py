"""A main thread that waits for a thread of its own process is held up by what that thread is at."""

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, ProcessTrace, Thread
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.stories import STACKS, frames, job, snapshot, trace

S3 = ["send botocore/httpsession.py", "getresponse http/client.py", "readinto socket.py", "recv_into ssl.py"]
POOLED = ["_worker concurrent/futures/thread.py", "run concurrent/futures/thread.py", "_fetch data/s3.py", *S3]
PUBLISHES = ["run threading.py", "_publish tracker/service.py", *S3]
FUTURE = ["<module> train.py", "next_batch data/reader.py", "result concurrent/futures/_base.py", "wait threading.py"]
EVENT = ["<module> train.py", "__iter__ data/s3.py", "wait threading.py"]
DEADLOCK = ["<module> train.py", "log metrics.py", "acquire threading.py"]


def waiting(rank: int, main: list[str], *helpers: list[str]) -> ProcessTrace:
    one = trace(Rank(rank), main, state="S")
    others = [Thread("", 7000 + at, frames(stack), False, False) for at, stack in enumerate(helpers)]
    return structs.replace(one, threads=(*one.threads, *others))


def judged(main: list[str], *helpers: list[str], ranks: range = range(16)) -> Verdict:
    others = [trace(Rank(rank), STACKS["gather"], state="S") for rank in range(16) if rank not in ranks]
    look = [*others, *(waiting(rank, main, *helpers) for rank in ranks)]
    return diagnose(snapshot(look, look), job(per_machine=4, dp=16))


@pytest.mark.parametrize("main", [FUTURE, EVENT], ids=["its pool", "the code that waits"])
def test_where_every_rank_waits_for_a_thread_that_asks_a_service_the_service_is_named(main: list[str]) -> None:
    verdict = judged(main, POOLED)
    assert verdict.kind is Kind.DEPENDENCY and not verdict.evict.machines


def test_one_rank_whose_thread_asks_a_service_is_held_up_by_it_rather_than_by_its_code() -> None:
    verdict = judged(FUTURE, POOLED, ranks=range(7, 8))
    causes = verdict.culprit.causes if verdict.culprit else {}
    assert verdict.suspects[0].ranks == (7,) and not verdict.evict.machines
    assert causes[StallCause.DEPENDENCY] > causes.get(StallCause.SOFTWARE, 0.0)


def test_what_every_thread_has_in_common_is_no_sign_of_a_wait() -> None:
    """With native frames each thread ends in the C library. Nor is a file of theirs CPython's for its last letters."""
    verdicts = []
    for helpers in ([PUBLISHES], []):
        look = []
        for rank in range(16):
            one = waiting(rank, ["<module> train.py", "guard mythreading.py", "acquire threading.py"], *helpers)
            native = Frame("syscall", "libc.so.6", 0, "libc.so.6")
            threads = tuple(structs.replace(thread, frames=(*thread.frames, native)) for thread in one.threads)
            look.append(structs.replace(one, threads=threads))
        verdicts.append(diagnose(snapshot(look, look), job(per_machine=4, dp=16)))
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize(
    ("main", "helper"),
    [(DEADLOCK, PUBLISHES), (DEADLOCK, POOLED), (EVENT, PUBLISHES), (FUTURE, PUBLISHES)],
    ids=["a tracker's thread", "another one's pool", "a thread of another file", "no thread of a pool"],
)
def test_a_thread_that_it_does_not_wait_for_changes_nothing(main: list[str], helper: list[str]) -> None:
    assert judged(main, helper) == judged(main)
