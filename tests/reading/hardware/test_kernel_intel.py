"""Lines of Intel's drivers in a kernel log: GPUs by xe, accelerators by habanalabs."""

import pytest

from hangdog_models.findings import Impact
from hangdog_models.reading.hardware import kernel_log

#: https://github.com/CachyOS/linux-cachyos/issues/892
OF_CACHYOS = """[18448.901378] xe 0000:00:02.0: [drm] *ERROR* Tile0: GT0: GuC engine reset request failed on 0:0 because 0x00000000
[18448.914740] xe 0000:00:02.0: [drm] Tile0: GT0: reset started
[18448.920382] xe 0000:00:02.0: [drm] *ERROR* Tile0: GT0: failed to clear GRDOM_FULL (-ETIMEDOUT)
[18448.921815] xe 0000:00:02.0: [drm] *ERROR* Tile0: GT0: reset failed (-ETIMEDOUT)
[18448.921820] xe 0000:00:02.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:00:02.0 as wedged.
               IOCTLs and executions are blocked.
"""
#: https://github.com/HabanaAI/Setup_and_Install/issues/1
OF_HABANA = """[   44.263378] habanalabs hl0: Successfully loaded firmware to device
[   72.993087] habanalabs hl2: Failed to communicate with Device CPU (CPU-CP timeout)
[   72.993088] habanalabs hl2: failed to initialize CPU H/W queues -5
[   72.993269] habanalabs 0000:1a:00.0: Failed to initialize hl2. Device is NOT usable !
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            OF_CACHYOS,
            [("Intel GPU reset failed", Impact.RESET, "0000:00:02"), ("Intel GPU wedged", Impact.RESET, "0000:00:02")],
        ),
        (OF_HABANA, [("Gaudi not started", Impact.RESET, "0000:1a:00")]),
        (
            "[    7.500000] habanalabs hl3: Device heartbeat failed! PCI link is healthy\n",
            [("Gaudi heartbeat", Impact.RESET, "hl3")],
        ),
        (
            "[    7.500000] habanalabs hl3: Failed to reset! Device is NOT usable\n",
            [("Gaudi reset failed", Impact.CONVICTS, "hl3")],
        ),
        (
            "[    7.500000] accel accel3: 0000:1a:00.0 Failed to reset! Device is NOT usable\n",
            [("Gaudi reset failed", Impact.CONVICTS, "accel3")],
        ),
        ("[    7.500000] habanalabs hl3: Successfully finished resetting the device\n", []),
        ("[    7.500000] xe 0000:03:00.0: [drm] GT0: reset done\n", []),
        ("[    7.500000] xe 0000:03:00.0: [drm] *ERROR* GT0: TLB invalidation time'd out, seqno=7\n", []),
    ],
)
def test_what_the_driver_says_of_a_device(text: str, found: list[tuple[str, Impact, str]]) -> None:
    assert kernel_log.recognises(text)
    assert [(one.code, one.impact, one.device) for one in kernel_log.read(text)] == found
