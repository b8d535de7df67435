"""The nouns of the domain (ranks, stacks, snapshots, verdicts) and pure functions on them: no I/O, clock or network."""
