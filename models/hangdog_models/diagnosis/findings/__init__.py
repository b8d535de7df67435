"""What logs and hardware report beside the stacks: it moves the odds of hypotheses, and adds some of its own."""
