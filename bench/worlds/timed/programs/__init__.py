"""The programs of ranks: what each framework does in a step, as its schedules are published."""
