"""From weighed hypotheses to the verdict: its kind, its suspects, and whom to evict."""
