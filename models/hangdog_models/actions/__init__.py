"""Whether a machine may be isolated: how far hangdog may go by itself, and what bounds it whatever a verdict says."""
