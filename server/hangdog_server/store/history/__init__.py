"""What is remembered of incidents that are over, beyond their verdicts."""
