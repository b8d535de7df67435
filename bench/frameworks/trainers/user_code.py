"""What users put around a framework: a data set on a file system, and a callback that does something between two steps.

What is to be done, by whom and after which step stands in `due.json` of the job's folder; the recorder writes it. It ends
whatever takes for ever by SIGUSR2. Nothing here tells a fault from a harmless phase by its name.
"""

import ctypes
import fcntl
import gc
import http.client
import io
import json
import logging
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from by_torch import gather_by_torch, torch_compile, wait_in_store
from host_work import compute, edit_distance, tokenised

FOLDER = Path(os.environ["FRAMEWORKS_FOLDER"])
#: Tokens of one read; a read is what a slow or dead file system holds up.
SHARD_TOKENS = 4096
#: A step lasts so long at least: most of a real one is spent on a device. Seconds.
PACE_S = float(os.environ.get("FRAMEWORKS_PACE_S", "0"))


class Enough(BaseException):
    """The recorder has seen what it came for."""


class Shards:
    """Batches of random tokens; each is preceded by a read of a shard."""

    def __init__(self, rank, rows, length, vocabulary):
        self.path, self.shape, self.vocabulary = FOLDER / f"shard-{rank}", (rows, length), vocabulary

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        import torch

        generator = torch.Generator().manual_seed(index + len(read_shard(self.path)))
        return torch.randint(self.vocabulary, self.shape, generator=generator)

    def __iter__(self):
        return map(self.__getitem__, range(len(self)))


def read_shard(path):
    with path.open("rb") as shard:
        return shard.read(SHARD_TOKENS)


class Between:
    """Does what is due between two steps."""

    def __init__(
        self, rank, barrier, all_reduce, save, compile_anew=None, all_gather=None, evaluate=None, await_word=None
    ):
        self.rank, self.barrier, self.all_reduce, self.save = rank, barrier, all_reduce, save
        self.compile_anew = compile_anew or torch_compile
        self.all_gather, self.evaluate = all_gather or gather_by_torch, evaluate or self.count_right_answers
        self.await_word, self.out_of_data = await_word or wait_in_store, False
        self.step, self.interruptible, self.interrupted = 0, False, False
        self.beside, self.began = None, time.monotonic()
        self.progress = os.open(FOLDER / f"step-{rank}", os.O_CREAT | os.O_RDWR)
        (FOLDER / f"pid-{rank}").write_text(str(os.getpid()))
        self.lock_of_metrics, self.lock_of_writer = threading.Lock(), threading.Lock()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR2, self.end)

    def end(self, *_):
        self.beside = None
        if self.interruptible:
            self.interrupted = True
            raise Enough

    def steps(self):
        """Answers whether this rank's data have ended."""
        if self.beside:
            self.beside()
        if PACE_S:
            time.sleep(max(self.began + PACE_S - time.monotonic(), 0))
            self.began = time.monotonic()
        self.step += 1
        os.pwrite(self.progress, b"%10d" % self.step, 0)
        try:
            due = json.loads((FOLDER / "due.json").read_bytes())
        except FileNotFoundError:
            return False
        if due["step"] == self.step:
            self.act(due["name"], due["ranks"])
        return self.out_of_data

    def act(self, name, ranks):
        mine = self.rank in ranks
        if mine:
            (FOLDER / f"begun-{name}-{self.rank}").touch()
        self.interruptible = mine
        try:
            getattr(self, name)(mine)
        except (Enough, Exception):
            if not self.interrupted:
                raise  # what was interrupted may say so in its own way
        self.interruptible = self.interrupted = False
        if name in WITH_BARRIER:
            self.barrier()

    # phases: the job goes on by itself

    def evaluate_answers(self, mine):
        """Evaluation in Python: edit distances of generated answers."""
        while mine:
            edit_distance(
                "the answer to this question is forty-two" * 3, "the question of this answer is not known" * 3
            )

    def spectrum(self, mine):
        """Evaluation in C: one long call."""
        import numpy

        while mine:
            numpy.linalg.eigvals(numpy.random.default_rng(1).standard_normal((3000, 3000)))

    def poll_judge(self, mine):
        """A served model judges answers: a request now and then, and sleep in between."""
        while mine:
            with urllib.request.urlopen(f"{os.environ['FRAMEWORKS_SERVER']}/status", timeout=5) as answer:
                if json.loads(answer.read())["done"]:
                    break
            time.sleep(2.5)

    def evaluate_all(self, mine):
        """Every rank evaluates its share of a held-out set, which comes slowly."""
        while True:
            read_shard(FOLDER / "held-out")
            edit_distance("abcdefgh" * 4, "hgfedcba" * 4)

    def save_checkpoint(self, mine):
        """A checkpoint to a slow file system."""
        if mine:
            with (FOLDER / "checkpoint").open("wb") as file:
                while True:
                    self.save(file)

    def upload_checkpoint(self, mine):
        """An upload to a slow server."""
        if mine:
            host, port = os.environ["FRAMEWORKS_SERVER"].removeprefix("http://").split(":")
            connection = http.client.HTTPConnection(host, int(port))
            connection.request("PUT", "/checkpoint", body=io.BytesIO(bytes(256 << 20)))
            connection.getresponse().read()

    def compile_kernels(self, mine):
        """One rank's graph has changed: it compiles again."""
        while mine:
            self.compile_anew()

    def wait_for_quota(self, mine):
        """Prints and sleeps."""
        while mine:
            print("waiting for quota", flush=True)
            time.sleep(1.0)

    def save_beside(self, mine):
        """A checkpoint in a thread of its own, while training goes on."""
        if mine:
            self.beside = _nothing
            threading.Thread(target=self.write_beside, daemon=True).start()

    def write_beside(self):
        with (FOLDER / "checkpoint").open("wb") as file:
            while self.beside:
                self.save(file)

    def tokenise(self, mine):
        """Two processes of a pool tokenise a data set for rank 0."""
        if mine:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                while True:
                    pool.map(tokenised, range(200))

    def download_once(self, mine):
        """Rank 0 downloads a data set under a lock; who finds it locked asks again, as filelock does."""
        if mine:
            with locked(FOLDER / "dataset.lock"):
                while True:
                    urllib.request.urlopen(f"{os.environ['FRAMEWORKS_SERVER']}/status").read()
                    time.sleep(0.5)
        time.sleep(0.2)
        with locked(FOLDER / "dataset.lock"):
            pass

    def warm_up(self, mine):
        """Waits for something that the user knows of, in long sleeps."""
        while mine:
            time.sleep(40.0)

    def collect_garbage(self, mine):
        """From now on each step collects the garbage of a large heap."""
        if mine:
            self.heap = [[number] for number in range(3_000_000)]
            self.beside = gc.collect

    def accumulate(self, mine):
        """From now on this rank's steps are longer than those of the others, each by another time."""
        if mine:
            self.beside = lambda: compute(random.uniform(0, 3))

    def optimise_long(self, mine):
        """From now on each step ends in a long optimizer step of all ranks."""
        self.beside = lambda: compute(4.0)

    def log_slowly(self, mine):
        """From now on this rank sends its figures to a service that takes two seconds for them, once a step."""
        if mine:
            self.beside = lambda: urllib.request.urlopen(f"{os.environ['FRAMEWORKS_SERVER']}/slow").read()

    def finish(self, mine):
        """The job is over: all leave, rank 0 has something to write still."""
        if self.rank == 0:
            compute(10.0)
        sys.stdout.flush()
        os._exit(0)

    # faults: nothing goes on until somebody acts

    def deduplicate(self, mine):
        """An endless loop in Python."""
        seen, size = set(), 8
        while mine and len(seen) < 1 << size:
            seen.add(hash(size) % (1 << size - 1))

    def flush_metrics(self, mine):
        """Two threads, two locks, two orders."""
        if mine:
            threading.Thread(target=self.write_metrics, daemon=True).start()
            with self.lock_of_metrics:
                time.sleep(0.5)
                with self.lock_of_writer:
                    pass

    def write_metrics(self):
        with self.lock_of_writer:
            time.sleep(0.5)
            with self.lock_of_metrics:
                pass

    def stage_data(self, mine):
        """Waits for a program that never ends."""
        if mine:
            with subprocess.Popen(["sleep", "100000"]) as program:
                try:
                    program.wait()
                finally:
                    program.kill()

    def fetch_config(self, mine):
        """A request without a time limit, to a server that takes it and never answers."""
        if mine:
            urllib.request.urlopen(f"{os.environ['FRAMEWORKS_SERVER']}/silent").read()

    def log_loss(self, mine):
        """All ranks but one reduce the loss."""
        if not mine:
            self.all_reduce(1.0)

    def sync_writers(self, mine):
        """A barrier of all that only some ranks come to."""
        if mine:
            self.barrier()

    def call_library(self, mine):
        """A library that is called without giving up the GIL, and does not return."""
        library = ctypes.PyDLL(None)
        while mine:
            library.pause()

    def clean_text(self, mine):
        """A pattern that backtracks 2^60 times."""
        if mine:
            re.fullmatch(r"(\s*\w+\s*)+!", "answer" * 10)

    def save_to_stalled(self, mine):
        """A checkpoint to a mount that takes no more."""
        if mine:
            with (FOLDER / "stalled").open("wb") as file:
                while True:
                    self.save(file)

    def log_state(self, mine):
        """A handler of the logger asks for a lock that others hold while they log."""
        if mine:
            logger, handler = logging.getLogger("trainer"), StateHandler(self.lock_of_writer)
            logger.addHandler(handler)
            threading.Thread(target=logger.warning, args=("state",), daemon=True).start()
            with self.lock_of_writer:
                time.sleep(0.5)
                logger.warning("step")

    def average_metrics(self, mine):
        """One rank gathers what all others reduce."""
        if mine:
            self.all_gather(1.0)
        else:
            self.all_reduce(1.0)

    def log_on_main(self, mine):
        """The rank that logs reduces the loss for it, alone."""
        if mine:
            self.all_reduce(1.0)

    def evaluate_alone(self, mine):
        """Rank 0 evaluates by what needs all ranks, the others wait for it."""
        if mine:
            self.evaluate()

    def count_right_answers(self):
        """Evaluation as it stands in a script: each rank counts, and the counts are added."""
        self.all_reduce(compute(1.0))

    def run_out(self, mine):
        """The data of some ranks are fewer by a batch, and nobody joins."""
        self.out_of_data = mine

    def prepare_data(self, mine):
        """One rank prepares the next epoch's data, the others wait for its word in the store."""
        while mine:
            edit_distance("the tokens of this document" * 3, "the tokens of that document" * 3)
        self.await_word()

    def build_extension(self, mine):
        """A build that was killed has left its lock."""
        from torch.utils import cpp_extension

        build = FOLDER / "extension"
        build.mkdir(exist_ok=True)
        (build / "lock").touch()
        cpp_extension.load_inline("fused_ops", "int two() { return 2; }", functions=["two"], build_directory=str(build))


#: After these all ranks meet; after the others those that had nothing to do wait in their next step.
WITH_BARRIER = {
    "evaluate_answers",
    "poll_judge",
    "save_checkpoint",
    "upload_checkpoint",
    "evaluate_all",
    "tokenise",
    "download_once",
    "evaluate_alone",
}


class StateHandler(logging.StreamHandler):
    """Writes a state beside each line, which a lock guards."""

    def __init__(self, lock):
        super().__init__()
        self.lock_of_state = lock

    def emit(self, record):
        time.sleep(0.2)
        with self.lock_of_state:
            super().emit(record)


def _nothing():
    pass


@contextmanager
def locked(path):
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
        yield
