"""How often a diagnosis is right: simulated incidents whose truth is known, and the table they make."""
