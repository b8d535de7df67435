"""Notices that a job has stalled, without touching it."""
