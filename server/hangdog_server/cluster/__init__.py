"""What is connected now: machines, jobs, who owns which rank, sessions of jobs, and which server leads a job."""
