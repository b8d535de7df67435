"""Programs whose date the test sets while they run: a library between them and the C library moves their wall clock, and no other."""

import os
import struct
from pathlib import Path

from support.fakes import targets

#: Adds the seconds that a file holds to every date; the steady clocks stay as they are.
_SHIM = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t *step;
__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("CLOCK_STEP") ? getenv("CLOCK_STEP") : "", O_RDONLY);
    void *at = fd < 0 ? MAP_FAILED : mmap(0, sizeof *step, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) step = at;
    if (fd >= 0) close(fd);
}
int clock_gettime(clockid_t which, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, which, now);
    if (!failed && step && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += *step;
    return (int)failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
"""


class Clock:
    """The wall clock of some programs, at first as far from the true one as said; `environ` is what they are started with."""

    def __init__(self, library: Path, file: Path, seconds: int = 0) -> None:
        self._file = file
        file.write_bytes(bytes(8))
        self.environ = {"LD_PRELOAD": os.fspath(library), "CLOCK_STEP": os.fspath(file)}
        self.step(seconds)

    def step(self, seconds: int) -> None:
        """Sets it so far from the true one, at once."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", seconds))


def shim(folder: Path) -> Path | None:
    """The library; None without a C compiler."""
    return targets.compiled(folder, "stepped", _SHIM)
