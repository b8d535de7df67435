"""Lists that the database searches, filters, sorts and pages."""
