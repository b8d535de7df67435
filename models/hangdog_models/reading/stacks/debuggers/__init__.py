"""Reads what debuggers print: the native stacks of gdb and lldb, and Python's stacks where gdb can tell them."""
