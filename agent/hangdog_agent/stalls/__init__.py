"""Notices that a job stands still, without touching it."""
