"""What each rank does: its stack written down, its call site and activity, and whether it moved between rounds."""
