"""What is recorded: harmless phases and faults, how each comes about, who has it, and which verdict is right."""

from dataclasses import dataclass
from zlib import crc32

from frameworks.environment import WORLD

#: Nobody is to blame, so nobody is evicted.
HARMLESS = ("none", "undetermined", "slow")
#: The same, where a service is what all wait for.
SERVED = (*HARMLESS, "dependency")


@dataclass(frozen=True, slots=True)
class Case:
    """A phase (nobody is to blame) or a fault. `act` is what trainers do by themselves, else the recorder does it to them.

    `who`: `first` is rank 0, `last` the highest, `one` any rank, `half` the first half, `all` every rank. `named`: that rank has to be named.
    `one_look` are the verdicts that a single look allows besides.
    """

    name: str
    truth: str
    verdicts: tuple[str, ...]
    act: str = ""
    who: str = "first"
    fault: bool = False
    named: bool = False
    evict_at_most: int = 0
    one_look: tuple[str, ...] = ()
    #: Whether the job goes on when the recorder ends it.
    ends: bool = True
    #: Whether its ranks are dead.
    deadly: bool = False
    #: Seconds until all others have come to wait.
    settle_s: float = 5.0

    def ranks(self, framework: str) -> tuple[int, ...]:
        chance = crc32(f"{framework}-{self.name}".encode())
        return {
            "first": (0,),
            "last": (WORLD - 1,),
            "one": (chance % WORLD,),
            "half": tuple(range(WORLD // 2)),
            "all": tuple(range(WORLD)),
        }[self.who]


def _phase(name: str, truth: str, act: str = "", who: str = "first", verdicts: tuple[str, ...] = HARMLESS) -> Case:
    return Case(name, truth, verdicts, act, who)


PHASES = (
    _phase("training", "It trains.", who="all"),
    _phase("evaluation-python", "Rank 0 evaluates in Python, the others wait for it.", "evaluate_answers"),
    _phase("evaluation-c", "Rank 0 evaluates in one long call of numpy, the others wait for it.", "spectrum"),
    _phase("evaluation-requests", "Rank 0 asks a judge now and then and sleeps in between.", "poll_judge"),
    _phase("evaluation-all", "All ranks evaluate, and their data comes slowly.", "evaluate_all", "all", SERVED),
    _phase("checkpoint", "Rank 0 writes a checkpoint to a slow file system.", "save_checkpoint", verdicts=SERVED),
    _phase("upload", "Rank 0 uploads a checkpoint to a slow server.", "upload_checkpoint", verdicts=SERVED),
    _phase("compile", "One rank compiles anew.", "compile_kernels", "one"),
    _phase("slow-reads", "All ranks read their batches from a slow file system.", who="all", verdicts=SERVED),
    _phase("quota", "One rank prints a line a second and sleeps.", "wait_for_quota", "one"),
    _phase("checkpoint-beside", "Rank 0 writes a checkpoint in a thread, training goes on.", "save_beside"),
    _phase("tokenising", "Two processes tokenise a data set for rank 0, the others wait for it.", "tokenise"),
    _phase(
        "download",
        "Rank 0 downloads under a file lock that the others ask for again and again.",
        "download_once",
        verdicts=SERVED,
    ),
    _phase("warm-up", "All ranks sleep for a long time.", "warm_up", "all"),
    _phase("garbage", "One rank collects the garbage of a large heap in each step.", "collect_garbage", "one"),
    _phase("accumulation", "One rank's steps are longer, each by another time.", "accumulate", "one"),
    _phase("optimizer", "Each step ends in a long optimizer step of all ranks.", "optimise_long", "all"),
    _phase("slow-logging", "Rank 0 sends its figures to a slow service in each step.", "log_slowly", verdicts=SERVED),
    _phase("debugger", "A debugger holds one rank.", who="one"),
)
STUCK = ("machine", "software")
OUTSIDE = (*STUCK, "dependency")
FAULTS = (
    Case("sigstop", "Its process was stopped (SIGSTOP).", ("machine",), who="one", fault=True, named=True, evict_at_most=1),
    Case(
        "endless-loop", "An endless loop in its Python code; from outside it is an evaluation that takes long.",
        (*STUCK, "slow", "undetermined"), "deduplicate", "one", fault=True, named=True, evict_at_most=1,
    ),
    Case(
        "lock", "Two of its threads wait for the lock that the other one holds.",
        STUCK, "flush_metrics", "one", fault=True, named=True, evict_at_most=1, one_look=("undetermined",),
    ),
    Case(
        "blocked-read", "The read of its next batch never returns.",
        OUTSIDE, who="one", fault=True, named=True, evict_at_most=1, one_look=("undetermined",),
    ),
    Case(
        "subprocess", "It waits for a program that never ends.",
        (*OUTSIDE, "undetermined"), "stage_data", "one", fault=True, named=True, evict_at_most=1,
    ),
    Case(
        "http", "It waits for the answer of a server that never answers.",
        (*OUTSIDE, "undetermined"), "fetch_config", "one", fault=True, named=True, evict_at_most=1,
    ),
    Case(
        "build-lock", "All ranks wait for a lock file that a killed build of an extension left.",
        ("software", "dependency", "undetermined"), "build_extension", "all", fault=True,
    ),
    Case(
        "skipped-collective", "It skips an all-reduce that all others enter.",
        ("software", "undetermined"), "log_loss", "one", fault=True, named=True, ends=False,
    ),
    Case(
        "subset-barrier", "Half of the ranks come to a barrier of all, the others train on.",
        ("software", "undetermined"), "sync_writers", "half", fault=True, ends=False,
    ),
    Case(
        "stopped-worker", "The worker of its data loader was stopped (SIGSTOP).",
        STUCK, who="one", fault=True, named=True, evict_at_most=1, one_look=("undetermined",),
    ),
    Case(
        "held-gil", "A call into C never returns and holds the GIL.",
        STUCK, "call_library", "one", fault=True, named=True, evict_at_most=1, one_look=("undetermined",),
    ),
    Case(
        "regex", "A regular expression backtracks for ever; from outside it is an evaluation that takes long.",
        (*STUCK, "slow", "undetermined"), "clean_text", "one", fault=True, named=True, evict_at_most=1,
    ),
    Case(
        "stalled-save", "Rank 0 writes a checkpoint to a mount that takes no more.",
        OUTSIDE, "save_to_stalled", fault=True, named=True, evict_at_most=1, one_look=("undetermined", "slow"),
    ),
    Case(
        "dead-service", "All ranks wait for the answer of one server that never answers.",
        ("dependency", "software", "undetermined"), "fetch_config", "all", fault=True,
    ),
    Case(
        "logging-lock", "It logs while it holds a lock that its logging thread waits for.",
        STUCK, "log_state", "one", fault=True, named=True, evict_at_most=1, one_look=("undetermined",),
    ),
    Case(
        "mismatched-collective", "It gathers in the collective in which all others reduce.",
        ("software", "undetermined"), "average_metrics", "one", fault=True, named=True, ends=False,
    ),
    Case(
        "extra-collective", "Rank 0 reduces once more than all others.",
        ("software", "undetermined"), "log_on_main", fault=True, named=True, ends=False,
    ),
    Case(
        "rank0-evaluation", "Rank 0 evaluates alone, with a collective inside.",
        ("software", "undetermined"), "evaluate_alone", fault=True, named=True, ends=False,
    ),
    Case(
        "uneven-inputs", "Its batches end one step early, and it waits in the last barrier.",
        ("software", "undetermined"), "run_out", "one", fault=True, named=True, ends=False,
    ),
    Case(
        "killed", "It was killed (kill -9), and its launcher, which is stopped, does not notice.",
        STUCK, "prepare_data", "last", fault=True, named=True, evict_at_most=1, one_look=("undetermined",),
        ends=False, deadly=True,
    ),
)  # fmt: skip
CASES = {case.name: case for case in (*PHASES, *FAULTS)}
