"""What to look at next: pure, from what was judged so far to the evidence that would decide."""
