"""Readers of kernel logs and of NVIDIA's tools."""
