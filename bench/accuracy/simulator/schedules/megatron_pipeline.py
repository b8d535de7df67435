"""Megatron-Core's pipeline schedules: none, 1F1B, and interleaved model chunks."""

from accuracy.simulator.job import Job, Role
from accuracy.simulator.program import Writer
from accuracy.simulator.schedules.megatron_layers import ACTIVATION, SCHEDULES, backward, forward

P2P = "megatron/core/pipeline_parallel/p2p_communication.py"


def pipeline(writer: Writer, job: Job, role: Role, *, forward_only: bool = False) -> None:
    if job.stages == 1:
        with writer.inside(f"forward_backward_no_pipelining {SCHEDULES}:451"):
            for number in range(job.microbatches):
                forward(writer, job, role)
                if not forward_only:
                    backward(writer, job, last=number == job.microbatches - 1)
    elif job.chunks > 1:
        with writer.inside(f"forward_backward_pipelining_with_interleaving {SCHEDULES}:1050"):
            _interleaved(writer, job, role, forward_only=forward_only)
    else:
        _one_forward_one_backward(writer, job, role, forward_only=forward_only)


def _one_forward_one_backward(writer: Writer, job: Job, role: Role, *, forward_only: bool) -> None:
    stage, stages, total = role.stage, job.stages, job.microbatches
    warm = total if forward_only else min(stages - stage - 1, total)
    loop = "forward_backward_pipelining_without_interleaving"

    def talk(name: str, line: int, up: str = "", down: str = "") -> None:
        """Sends (`s`) and receives (`r`) with the stage before (`up`) and the one behind (`down`), in one batch."""
        peers = [(-1, way == "s", "") for way in up if stage > 0]
        peers += [(1, way == "s", "") for way in down if stage < stages - 1]
        with writer.inside(
            f"{loop} {SCHEDULES}:{line}", f"{name} {SCHEDULES}:{line - 215}", f"{name} {P2P}:{line - 947}"
        ):
            _communicate(writer, job, tuple(peers))

    def compute(*, back: bool, line: int, last: bool = False) -> None:
        with writer.inside(f"{loop} {SCHEDULES}:{line}"):
            backward(writer, job, last=last) if back else forward(writer, job, role)

    for _ in range(warm):
        talk("recv_forward", 1406, up="r")
        compute(back=False, line=1413)
        talk("send_forward", 1428, down="s")
    if total > warm:
        talk("recv_forward", 1438, up="r")
    for number in range(warm, total):
        compute(back=False, line=1442)
        talk("send_forward_recv_backward", 1467, down="sr")
        last = number == total - 1
        compute(back=True, line=1487, last=last and not warm)
        if last:
            talk("send_backward", 1490, up="s")
        else:
            talk("send_backward_recv_forward", 1495, up="sr")
    for number in range(0 if forward_only else warm):
        talk("recv_backward", 1508, down="r")
        compute(back=True, line=1512, last=number == warm - 1)
        talk("send_backward", 1516, up="s")


def _communicate(writer: Writer, job: Job, peers: tuple[tuple[int, bool, str], ...]) -> None:
    if peers:
        with writer.inside(f"_communicate {P2P}:378"), writer.inside(f"_batched_p2p_ops {P2P}:164"):
            writer.p2p("pp", peers, ACTIVATION, handle="p2p")
        with writer.inside(f"_communicate {P2P}:{399 if job.p2p_sync else 391}"):
            writer.wait("p2p")
            if job.p2p_sync and not job.gloo:
                writer.synchronize()


def _interleaved(writer: Writer, job: Job, role: Role, *, forward_only: bool) -> None:
    """Virtual micro-batches in Megatron's order, with overlap_p2p_comm: single sends and receives, waited for by the device.

    Megatron pairs them by order, alternating even and odd ranks; here a tag of direction and chunk pairs them.
    """
    stages, chunks, stage = job.stages, job.chunks, role.stage
    total = job.microbatches * chunks
    warm = total if forward_only else min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)

    def chunk(number: int, *, back: bool = False) -> int:
        at = number % (stages * chunks) // stages
        return chunks - 1 - at if back else at

    def step(number: int, *, back: bool) -> None:
        here = chunk(number, back=back)
        name, down = ("backward", -1) if back else ("forward", 1)
        begins = (stage == stages - 1 and here == chunks - 1) if back else (stage == 0 and here == 0)
        ends = (stage == 0 and here == 0) if back else (stage == stages - 1 and here == chunks - 1)
        source = here + (1 if back and stage == stages - 1 else -1 if not back and stage == 0 else 0)
        with writer.inside(f"recv_{name} {P2P}:461", f"_communicate {P2P}:378", f"_p2p_ops {P2P}:237"):
            if not begins:
                writer.p2p("pp", ((-down, False, f"{name}{source}"),), ACTIVATION, handle="recv")
        if not begins:
            writer.wait("recv")
        if back:
            with writer.inside(f"backward_step_helper {SCHEDULES}:810"):
                backward(writer, job, last=number == total - 1)
        else:
            with writer.inside(f"forward_step_helper {SCHEDULES}:735"):
                forward(writer, job, role, loads=begins or ends)
        with writer.inside(f"send_{name}_recv_{name} {P2P}:560", f"_communicate {P2P}:378", f"_p2p_ops {P2P}:233"):
            if not ends:
                writer.p2p("pp", ((down, True, f"{name}{here}"),), ACTIVATION)

    for number in range(warm):
        step(number, back=False)
    for number in range(warm, total):
        step(number, back=False)
        step(number - warm, back=True)
    for number in range(0 if forward_only else total - warm, total if not forward_only else 0):
        step(number, back=True)
