"""Ways to read a process, one a file."""
