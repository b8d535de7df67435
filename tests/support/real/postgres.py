"""A PostgreSQL of the tests' own: its binaries as they are installed, its data in a temporary folder, no port of the network."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from hangdog_server.store.database import Database
from hangdog_server.store.transactions import WITHIN_S

#: Where distributions put what is not on PATH.
ELSEWHERE = "usr/lib/postgresql/*/bin", "usr/pgsql-*/bin"
#: Needs quoting in a URL, and must never be seen again.
SECRET = "s3cret/@:word"
USER = "hangdog"
#: Users that may run it where the tests are root, which PostgreSQL refuses.
OTHERS = "postgres", "nobody"


def binaries() -> Path | None:
    """The folder of `initdb` and `pg_ctl`, the newest one; None where PostgreSQL is not installed."""
    found = [folder for pattern in ELSEWHERE for folder in Path("/").glob(pattern) if (folder / "initdb").exists()]
    if found:
        return max(found, key=lambda folder: [int(part) for part in folder.parent.name.split(".") if part.isdigit()])
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path and shutil.which("pg_ctl") else None


class Postgres:
    """A running server, reached through a Unix socket."""

    def __init__(self, folder: Path, binaries: Path, fsync: bool) -> None:
        self._folder, self._binaries = folder, binaries
        self._fsync = "on" if fsync else "off"
        self._data = folder / "data"
        self._as: tuple[str, ...] = ()
        if os.geteuid() == 0:
            account = pwd.getpwnam(next(name for name in OTHERS if _known(name)))
            self._as = as_other(account.pw_uid, account.pw_gid)
            os.chown(folder, account.pw_uid, account.pw_gid)
        word = folder / "word"
        word.write_text(SECRET)
        word.chmod(0o644)
        ways = ["-U", USER, "-A", "scram-sha-256", f"--pwfile={word}", "-E", "UTF8", "--locale=C.UTF-8", "-N"]
        told = subprocess.run([binaries / "initdb", "--help"], capture_output=True, text=True, check=True).stdout
        if "--locale-provider" in told:  # people's databases order text by their language, which names must not follow
            ways += ["--locale-provider=icu", "--icu-locale=en-US"]
        self._call("initdb", *ways)
        self._databases = 0
        self._tables = ""

    def start(self) -> None:
        options = f"-k {self._folder} -c listen_addresses= -c fsync={self._fsync} -c max_connections=40"
        log = str(self._folder / "log")
        try:
            self._call("pg_ctl", "-o", options, "-l", log, "-w", "-s", "start")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{Path(log).read_text()}") from None

    def stop(self) -> None:
        """Ends it at once, with a word to those who are connected."""
        self._end(self.processes()[:1], signal.SIGQUIT)

    def kill(self) -> None:
        """Ends it as a lost power supply would."""
        self._end(self.processes(), signal.SIGKILL)

    def _end(self, told: list[int], how: signal.Signals) -> None:
        pids = self.processes()
        for pid in told:
            os.kill(pid, how)
        while any(map(_lives, pids)):
            time.sleep(0.01)
        for lock in (self._data / "postmaster.pid", *self._folder.glob(".s.PGSQL.*.lock")):
            lock.unlink(missing_ok=True)  # where nobody reaps it at once, its number seems to be taken yet

    def processes(self) -> list[int]:
        """The server's process and those of its connections."""
        first = int((self._data / "postmaster.pid").read_text().split()[0])
        return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]

    def database(self, **options: str) -> str:
        """The URL of a new, empty database."""
        self._databases += 1
        name = f"store{self._databases}"
        with self.connection() as connection:
            connection.execute(f"CREATE DATABASE {name} {' '.join(f'{key} {value}' for key, value in options.items())}")
        return self.url(name)

    def store(self) -> str:
        """The URL of a new database with the tables of a store, copied from one that was migrated."""
        if not self._tables:
            url = self.database()
            Database(url, WITHIN_S).close()
            self._tables = f"store{self._databases}"
        return self.database(TEMPLATE=self._tables)

    def url(self, database: str, secret: str = SECRET) -> str:
        return f"postgresql://{USER}:{quote(secret, safe='')}@/{database}?host={self._folder}"

    @contextmanager
    def connection(self, database: str = "postgres") -> Iterator["psycopg.Connection[Any]"]:
        """A connection of the test's own, beside those of the store."""
        with psycopg.connect(
            host=str(self._folder), user=USER, password=SECRET, dbname=database, autocommit=True
        ) as connection:
            yield connection

    def _call(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._binaries / program), "-D", str(self._data), *arguments]
        done = subprocess.run(command, check=False, cwd="/", capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}"


def as_other(user: int, group: int) -> tuple[str, ...]:
    """What stands before a command that is to run as somebody else.

    subprocess's own `user=` has Python fork instead of vfork. The fork handlers of gRPC run in such a child, and where the
    tests speak gRPC at that moment, they end it by SIGSEGV now and then.
    """
    return "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"


def _known(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def started(fsync: bool = False) -> Iterator[Postgres | None]:
    """A server for as long as the block lasts; None where PostgreSQL is not installed. `fsync`: as in earnest."""
    found = binaries()
    if found is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="hangdog-pg-") as folder:  # pytest's own folders let no other user in
        server = Postgres(Path(folder), found, fsync)
        server.start()
        try:
            yield server
        finally:
            with suppress(OSError):  # a test ended it already
                server.stop()
