"""Commands that run and keep hangdog itself."""
