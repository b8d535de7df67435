"""A world of timed jobs by another hand: what a look shows follows from how long things last, and nothing else is drawn on it."""
