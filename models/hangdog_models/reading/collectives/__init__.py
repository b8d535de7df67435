"""Readers of what collectives libraries counted: PyTorch's flight recorder and NCCL RAS."""
