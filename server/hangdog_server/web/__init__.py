"""The HTTP side for people: pages that stay true while they are open, and the same as JSON."""
