"""The database: one engine-neutral store, one file of rows for each feature, migrations and retention."""
