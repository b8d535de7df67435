"""From weighed hypotheses to the verdict: its kind, its suspects, and what to evict."""
