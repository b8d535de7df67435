"""What `hangdog.trace()` does in a trainer: it keeps the ring of the NCCL profiler plug-in for collectives that hosts carry out."""
