"""Who waits for whom: by frames and topology, and exactly where collective counters are known."""
