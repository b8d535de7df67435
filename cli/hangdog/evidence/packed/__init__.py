"""Archives of a bundle: what is in them, within bounds, without writing anything."""
