"""Finds training processes and reads what the kernel says of them, with no configuration."""
