"""The lists of a fleet as pages, programs and commands ask for them."""
