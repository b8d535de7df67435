"""What a capture of an incident writes down: the files of a bundle, read off the history of hosts and devices."""
