"""What to collect next: pure functions from the judgement so far to the evidence that would decide."""
