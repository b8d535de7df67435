"""What the agent tells of a job by itself, once: a crash, or wrong numbers."""

from dataclasses import dataclass

from hangdog_agent.discovery.watch import LocalJob
from hangdog_proto.generated import hangdog_pb2 as pb


@dataclass(frozen=True, slots=True)
class JobReport:
    """A message for the server, but for the job and the machine; `at` is when it began, of `time.monotonic`."""

    job: LocalJob
    message: pb.Spooled
    at: float
