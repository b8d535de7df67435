"""Looks at files that trainers write, logs and heartbeats: what was appended, when they were touched; a few bytes at a time.

Each user's files are looked at by a process with that user's rights (file_reader.py). A file may lie on a server that is dead, and
then a process that touches it hangs: it is killed, and that file and its file system are set aside for a while. So
nothing waits, and no user's files cost another's.
"""

import logging
import subprocess
import time
from collections.abc import Mapping
from typing import Generic, TypeVar

from hangdog_agent.confinement import credentials
from hangdog_agent.confinement.credentials import Credentials, CredentialsRefused
from hangdog_agent.stalls.progress.file_reader import MOST_PATH, FileQuery, FileReader, Found

#: A round takes a millisecond, unless a file hangs; it is waited for no longer. Seconds.
_GRACE_S = 0.05
_LOOK_UP_S = 0.002
#: A file that has not answered for so long hangs. Starting the process is among it. Seconds.
_HANGS_S = 3.0
#: So long what hung is left alone, and a user whose process ended by itself. Seconds.
_ASIDE_S = 60.0
#: So long it is remembered whose a trainer is. Seconds.
_OWNER_S = 10.0
#: Users followed at the same time; each costs a process of 10 MiB.
_MOST_READERS = 16
#: Processes that do not die, for a dead file system holds them: with so many of one user's no more are started for it.
_MOST_HELD = 2
#: A process that was not needed for so long ends. Seconds.
_IDLE_S = 120.0
#: Files of one user looked at in a round: those of 64 trainers.
_MOST = 256

K = TypeVar("K")
Answer = tuple[float, dict[K, Found | None]]

log = logging.getLogger(__name__)


class Files(Generic[K]):
    """Rounds over files, each of which has a key. Only one thread may use it."""

    def __init__(self, proc: str = "/proc") -> None:
        """`proc` is the folder of the process table."""
        self._proc = proc
        self._readers: dict[Credentials, FileReader[K]] = {}
        self._aside: dict[K, float] = {}
        self._devices: dict[K, int] = {}
        self._owners: dict[tuple[int, int], tuple[Credentials | None, float]] = {}
        self._lately: dict[tuple[int, int], Credentials] = {}
        self._dead: dict[int, float] = {}
        self._refused: dict[Credentials, float] = {}
        self._held: dict[Credentials, list[subprocess.Popen[bytes]]] = {}

    def look(self, wishes: Mapping[K, FileQuery]) -> list[Answer[K]]:
        """Starts a round of each user whose last one has ended, and answers the rounds that have: when, and what they found.

        None stands for what is no file. What hangs is absent from an answer.
        """
        now = time.monotonic()
        self._expire(now)
        for who, group in self._grouped(wishes, now).items():
            self._begin(who, group, now)
        return self._collect()

    def close(self) -> None:
        for who in list(self._readers):
            self._end(who)

    def _grouped(self, wishes: Mapping[K, FileQuery], now: float) -> dict[Credentials, dict[K, FileQuery]]:
        groups: dict[Credentials, dict[K, FileQuery]] = {}
        for key, wish in wishes.items():
            if key in self._aside or self._devices.get(key) in self._dead or len(wish.path) > MOST_PATH:
                continue
            if wish.ended:  # nothing says any more whose it was
                who = self._lately.get(wish.trainer)
            else:
                who, _ = self._owners.get(wish.trainer) or self._owner(wish.trainer, now)
            if who is not None and len(group := groups.setdefault(who, {})) < _MOST:
                group[key] = wish
        return groups

    def _owner(self, trainer: tuple[int, int], now: float) -> tuple[Credentials | None, float]:
        """The user whose files they are. A pid may become another user's, but the reader asks again before it opens them."""
        try:
            who: Credentials | None = credentials.of(trainer[0], self._proc)
        except (CredentialsRefused, ProcessLookupError):
            who = None
        self._owners[trainer] = who, now + _OWNER_S
        if who is not None:
            self._lately.pop(trainer, None)
            self._lately = dict([*self._lately.items(), (trainer, who)][-_MOST * _MOST_READERS :])
        return self._owners[trainer]

    def _begin(self, who: Credentials, wishes: dict[K, FileQuery], now: float) -> None:
        reader = self._readers.get(who)
        if reader is None:
            held = [process for process in self._held.pop(who, []) if process.poll() is None]
            if held:
                self._held[who] = held
            if who in self._refused or len(self._readers) >= _MOST_READERS or len(held) >= _MOST_HELD:
                return
            try:
                reader = self._readers[who] = FileReader(who, self._proc)
            except OSError as error:
                self._refuse(who, str(error.strerror or error))
                return
        if not reader.busy:
            reader.ask(wishes)

    def _collect(self) -> list[Answer[K]]:
        """The rounds that end within the grace."""
        answers: list[Answer[K]] = []
        until = time.monotonic() + _GRACE_S
        going = [who for who, reader in self._readers.items() if reader.busy]
        while going:
            for who in list(going):
                try:
                    answer = self._readers[who].answer()
                except (
                    ValueError,
                    KeyError,
                    TypeError,
                    OSError,
                ):  # not one of ours any more: its user may have broken it
                    self._refuse(who, "it answered nonsense")
                    going.remove(who)
                    continue
                if answer is not None:
                    answers.append(answer)
                    going.remove(who)
                elif (last := self._given_up(who)) is not None:
                    answers.append(last)
                    going.remove(who)
            if not going or time.monotonic() >= until:
                break
            time.sleep(_LOOK_UP_S)
        if len(self._devices) > _MOST * _MOST_READERS:
            self._devices.clear()  # of processes long gone
        for _, found in answers:
            self._devices |= {key: one.identity[0] for key, one in found.items() if one is not None}
        return answers

    def _given_up(self, who: Credentials) -> Answer[K] | None:
        """What a round brought whose process has ended, or hangs and is killed; None while there is hope."""
        reader, now = self._readers[who], time.monotonic()
        at, found = reader.at()
        if (words := reader.ended()) is not None:
            self._refuse(who, words)
            return now, found
        if reader.silent_s() < _HANGS_S:
            return None
        if at is not None:
            self._aside[at] = now + _ASIDE_S
            if at in self._devices:
                self._dead[self._devices[at]] = now + _ASIDE_S
        self._end(who)
        return now, found

    def _refuse(self, who: Credentials, words: str) -> None:
        log.warning("logs and heartbeats of user %d are not followed for %.0f s: %s", who.uid, _ASIDE_S, words)
        self._refused[who] = time.monotonic() + _ASIDE_S
        self._end(who)

    def _end(self, who: Credentials) -> None:
        reader = self._readers.pop(who, None)
        if reader is not None and (undead := reader.close()) is not None:
            self._held.setdefault(who, []).append(undead)

    def _expire(self, now: float) -> None:
        self._owners = {trainer: known for trainer, known in self._owners.items() if known[1] > now}
        self._aside = {key: until for key, until in self._aside.items() if until > now}
        self._dead = {device: until for device, until in self._dead.items() if until > now}
        self._refused = {who: until for who, until in self._refused.items() if until > now}
        for who in [who for who, reader in self._readers.items() if not reader.busy and now - reader.used > _IDLE_S]:
            self._end(who)
