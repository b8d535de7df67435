"""Commands that need no server: judge a folder of evidence, and look closer at its stacks."""
