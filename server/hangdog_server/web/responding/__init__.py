"""The part of an incident's page by which people take it, note, resolve and reopen it, and what stands behind it."""
