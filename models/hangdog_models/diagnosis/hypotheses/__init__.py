"""Every explanation of what was seen, each with the factors that its odds are made of."""
