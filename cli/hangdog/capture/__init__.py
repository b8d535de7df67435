"""Captures the training jobs of this machine, or of several, without an agent or a server running there."""
