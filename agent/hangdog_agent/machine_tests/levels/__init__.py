"""The levels of the machine tests, one a file, from passive reading to a replay of the job."""
