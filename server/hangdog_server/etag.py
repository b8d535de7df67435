"""Tells whether something is still what somebody was shown or told of it, by a few characters."""

import hashlib


def digest(*shown: object) -> str:
    """16 characters that are others once one of these is shown by other words; it must be written the same in every process."""
    return hashlib.blake2b(repr(shown).encode("utf-8", "replace"), digest_size=8).hexdigest()
