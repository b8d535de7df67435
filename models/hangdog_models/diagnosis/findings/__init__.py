"""What logs and hardware say beside the stacks: it moves the odds of hypotheses, and adds some of its own."""
