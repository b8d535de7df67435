"""Which rank waits for which: by frames and topology, and exactly where collective counters are known."""
