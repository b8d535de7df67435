"""Says which devices there are, and which torch would test them."""

from __future__ import annotations

import torch

from hangdog_agent.machine_tests.programs.report_line import ReportLines


def main() -> None:
    stated = ReportLines()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    stated.found({"torch": torch.__version__, "accelerators": count, "nccl": torch.distributed.is_nccl_available()})


if __name__ == "__main__":
    main()
