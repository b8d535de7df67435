"""How far the operations of a job have come, as its libraries tell while they run."""
