"""Readers of what samplers collect, where a stack stands in each line."""
