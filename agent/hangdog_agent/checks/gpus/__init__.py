"""The checks of GPUs: a child asks NVML, and thresholds say what its answers mean."""
