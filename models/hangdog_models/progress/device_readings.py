"""What a rank's device does inside collectives, counted over many readings of its profiler ring."""

import msgspec


class DeviceReadings(msgspec.Struct, frozen=True, gc=False):
    """In how many readings the device was found so, since its ring was first read. The counts only grow.

    - `waiting`: inside a collective in which other ranks hold it up.
    - `behind`: its host has launched a collective and it is not inside yet, or its own data holds the collective up.
    - `sending`: the network had not confirmed what it sent.
    - `communicator`, `number`: a communicator with transfers and this rank's number in it; -1 if there is none.
    - `peer`: the number of the rank to which it was `sending` most often lately; -1 if there is none.
    """

    waiting: int
    behind: int
    sending: int
    communicator: int = 0
    number: int = -1
    peer: int = -1
