"""How long a job stands after an eviction: with spares as they are, tested first, or tested and warmed ahead."""
