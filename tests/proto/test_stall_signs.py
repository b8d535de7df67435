"""What a rank shows of a stall goes over the wire whole."""

from hangdog_models.owner import UNKNOWN
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.codec import stall_signs


def test_a_sign_arrives_as_it_was_sent() -> None:
    stopped = Sign(Doing.STILL, 6.0, overdue=True, place="stopped in train", crowding=2.0, stopped=True)
    waits = Sign(Doing.LOOPING, 7.5, place="all_reduce", waits=True)
    sent = {"llama": {Rank(1): stopped, Rank(2): waits}}
    assert stall_signs.unpack(stall_signs.pack(sent)) == {("llama", UNKNOWN): sent["llama"]}
