"""What a server costs at the size of a cluster: the true protocol, spoken by as many played agents as one wants."""
