"""A training loop that blocks in one of the many calls of plain Python that may never return."""
