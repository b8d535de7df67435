"""What the agent counts of itself, as a text file that node_exporter reads."""
