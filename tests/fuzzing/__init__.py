"""Feeds the readers of foreign evidence garbage: whatever they are given, they answer or raise our own error, and in time."""
