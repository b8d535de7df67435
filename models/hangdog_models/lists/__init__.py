"""The lists of a fleet: what is asked of one, in which states its lines are, and the page that answers."""
