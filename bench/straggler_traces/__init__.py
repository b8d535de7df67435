"""Published traces of slow jobs, written as flight recorder dumps with times, and judged."""
