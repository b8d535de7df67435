"""Runs a job in time: hosts run their programs, devices their queues, and collectives join them."""
