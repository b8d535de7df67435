"""The page of a trainer that makes steps: how many it is to make, how many it made, and how long each took."""

from enum import IntEnum

#: Steps that are remembered, the oldest ones are overwritten.
KEPT = 1 << 14


class At(IntEnum):
    """Where each number stands on the page; the seconds of the steps follow, step n at `STEPS + n % KEPT`."""

    #: So many steps are to have been made.
    TARGET = 0
    #: So many were made.
    DONE = 1
    STEPS = 2
