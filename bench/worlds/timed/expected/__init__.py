"""What is expected of a verdict: from what happened, and from what of it the evidence can show; never from a verdict."""
