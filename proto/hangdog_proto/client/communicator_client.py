"""Asks a server how the communicators of a job go on."""

from dataclasses import dataclass

from hangdog_models.progress.communicator_window import JobCommunicator
from hangdog_proto.client.incidents import ANSWER_S, Client
from hangdog_proto.codec import communicator_list
from hangdog_proto.generated import hangdog_pb2 as pb


@dataclass(frozen=True, slots=True)
class ListedCommunicators:
    """The communicators of a job, those first in which a rank waits; `found` in all, and `left_out` for want of room."""

    communicators: tuple[JobCommunicator, ...]
    found: int
    left_out: int


class CommunicatorClient(Client):
    """A Client that asks for communicators; it raises HangdogError."""

    def communicators(self, job: str, limit: int = 0) -> ListedCommunicators:
        """Those of one job; 0: as many as the server gives by itself."""
        with self._errors():
            answer = self._incidents.Communicators(pb.CommunicatorsRequest(job=job, limit=limit), timeout=ANSWER_S)
        return ListedCommunicators(
            tuple(map(communicator_list.unpack, answer.communicators)), answer.found, answer.left_out
        )
