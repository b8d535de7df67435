"""How the tables came to be what they are, one step a file in `versions/`, run by Alembic when a server opens its store.

A step that a release has run is never edited: the next one changes what it left. Each runs on SQLite and on PostgreSQL,
in one transaction with all the others that are due, so that a server that dies meanwhile leaves the store as it was.
Add columns with a default, new tables beside the old ones, and a file `NNNN_what.py` with the next number; a test compares
what the steps leave with `tables.py`, on both engines.
"""
