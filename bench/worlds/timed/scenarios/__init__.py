"""What happens to a job: phases that are healthy, and faults of hosts, devices, code and services."""
