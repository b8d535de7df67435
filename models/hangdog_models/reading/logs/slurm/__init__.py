"""What Slurm says of machines and jobs: its commands, and the log of its controller."""
