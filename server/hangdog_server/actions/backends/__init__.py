"""Who carries an act out: one way to take a machine out of use a file, each behind the Protocol of `backend.py`."""
