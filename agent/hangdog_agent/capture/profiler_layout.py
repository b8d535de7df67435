"""Where what stands in the ring of hangdog's NCCL profiler plug-in, as agent/profiler/profiler.c lays it out; nothing but the standard library.

A record begins with a number that counts its writes, and is odd during one.
"""

import struct

VERSION = 1
MAGIC = b"HDNCCLPR"
COMMS, OPS, FLOWS = 64, 768, 512
HEADER = struct.Struct("<8sIIIIII QQQQ")
COMM = struct.Struct("<QIiii QQQ 64s 8Q 4Q 6Q 6Q 208x")
#: The last operation of a communicator, within its record.
LAST = struct.Struct("<QQQQ i H B x 16s 12s 20s 12s")
AT_LAST = 328
OP = struct.Struct("<QII 4Q 4Q 4I i H B x 16s 12s 20s 12s 28x")
FLOW = struct.Struct("<QII QQQQ 5i 4I 44x")
AT_COMMS = 4096
AT_OPS = AT_COMMS + COMMS * COMM.size
AT_FLOWS = AT_OPS + OPS * OP.size
#: Bytes of a ring.
SIZE = AT_FLOWS + FLOWS * FLOW.size
LIVE, ENDED = 2, 3
#: Times that a record is read again that changed while it was read: writing its identity takes less than a microsecond.
TRIES = 8

#: Where records begin, how far they are apart and how many there are. The last operation of a communicator is one, too.
TABLES = (
    (AT_COMMS, COMM.size, COMM.size, COMMS),
    (AT_COMMS + AT_LAST, LAST.size, COMM.size, COMMS),
    (AT_OPS, OP.size, OP.size, OPS),
    (AT_FLOWS, FLOW.size, FLOW.size, FLOWS),
)
