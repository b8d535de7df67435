"""Traces of any kind, for the laws of the wire."""

from hypothesis import strategies as st
from msgspec import structs

from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(0, (1 << 32) - 1)
tri = st.sampled_from([None, True, False])
frames = st.builds(Frame, texts, texts, numbers, st.none() | texts)
threads = st.builds(
    Thread,
    st.none() | texts.filter(bool),
    st.integers(0, (1 << 64) - 1),
    st.lists(frames, max_size=6).map(tuple),
    tri,
    tri,
)
counts, places = st.integers(0, (1 << 64) - 1), st.integers(-1, MAX_RANK)
devices = st.builds(DeviceReadings, counts, counts, counts, counts, places, places).filter(
    lambda one: one.waiting or one.behind or one.sending
)
states = st.builds(
    ProcessState,
    pid=numbers,
    state=st.sampled_from("RSDTtZX"),
    wchan=texts,
    syscall=texts,
    cpu_s=st.none() | st.floats(0, 1e12),
    comm=texts,
    cmdline=texts,
    ran_s=st.none() | st.floats(0, 1e12),
    wakes=st.none() | st.integers(0, 1 << 40),
    steps=st.none() | st.integers(0, 1 << 40),
    device=st.none() | devices,
)
traces = st.builds(
    ProcessTrace,
    rank=st.integers(0, MAX_RANK).map(Rank),
    role=texts.filter(bool),
    pid=st.none() | st.integers(1, (1 << 32) - 1),
    threads=st.lists(threads, max_size=4).map(tuple),
    state=st.none() | states,
    missing=st.none() | st.builds(Missing, st.sampled_from(Reason), texts),
)


def _of_one_process(trace: ProcessTrace) -> ProcessTrace:
    if trace.state is None or trace.pid is None:
        return trace
    threads = tuple(structs.replace(thread, tid=(trace.pid + thread.tid) % (1 << 32)) for thread in trace.threads)
    return structs.replace(trace, state=structs.replace(trace.state, pid=trace.pid), threads=threads)


#: As a machine has them: the kernel's view is of the process that was read.
plausible = traces.map(_of_one_process)
