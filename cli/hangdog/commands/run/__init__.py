"""The command that supervises a job."""
