"""What is measured: a module for each family of parts, and what it is made of."""
