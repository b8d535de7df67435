"""Long phases of a job: what one rank does for all, or all ranks do at once, as a timed sequence of places."""
