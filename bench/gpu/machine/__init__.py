"""What parts about the machine itself share: its NVML and log, the programs of its driver, faults and processes that end."""
