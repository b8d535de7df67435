"""Reads the loss and the gradient norm that usual loggers write."""
