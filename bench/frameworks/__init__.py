"""Real trainers of frameworks that others wrote, recorded while they are busy or broken, and judged."""
