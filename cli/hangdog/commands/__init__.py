"""One sub-command a file; the docstring of its function is its help."""
