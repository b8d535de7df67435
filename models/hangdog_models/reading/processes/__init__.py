"""Readers of what tools say of processes without their stacks: tables of them, and the call that each sleeps in."""
