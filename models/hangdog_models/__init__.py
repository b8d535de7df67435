"""The nouns of the domain (ranks, stacks, snapshots, verdicts) and the pure thinking upon them: no I/O, clock or network."""
