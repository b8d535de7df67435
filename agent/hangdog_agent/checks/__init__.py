"""Looks at the machine itself, check by check: GPUs, kernel log, network, storage, disks, memory, PCIe."""
