"""How a stack becomes a verdict."""
