"""What the agent costs: a benchmark of one machine. `python bench/overhead` runs it."""
