"""Names of functions as far as they are the same in every process."""

import re

#: A place in a library that has no symbols, as tools write it. Where a library lies differs from process to process, by
#: whole pages of 4 KiB at least, so that the last three digits are the place's own (address space layout randomisation).
_ADDRESS = re.compile(r"0x[0-9a-fA-F]*([0-9a-fA-F]{3})")


def symbol(function: str) -> str:
    """The name, or of an address what is the same of it wherever its library lies: `0x…f16`."""
    found = _ADDRESS.fullmatch(function)
    return f"0x…{found[1]}" if found else function
