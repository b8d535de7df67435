"""How much of its time a job trains while machines and code fail, below `hangdog run` and below torchrun's own restarts."""
