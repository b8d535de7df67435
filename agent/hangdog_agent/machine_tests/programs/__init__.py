"""The programs that test: each runs as a child under a Python that has torch, and imports nothing of ours but this folder."""
