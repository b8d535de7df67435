"""What a page shows of a case, as nouns: the grid of ranks, the merged stacks, who waits, what libraries counted, exports."""
