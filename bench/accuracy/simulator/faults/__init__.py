"""The fault matrix of the benchmark: what breaks, how it is planted in a run, and what is then true."""
