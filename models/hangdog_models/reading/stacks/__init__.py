"""Readers of stacks: py-spy, pystack, gdb, and the kernel's view of a process."""
