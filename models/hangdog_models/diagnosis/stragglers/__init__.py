"""Fail-slow: which machine a job that moves waits for again and again."""
