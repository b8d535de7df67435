"""The proof on a GPU: real CUDA, NCCL and NVML under everything that hangdog does, with one command."""
