"""Reports in logs that take several lines, or that name others than the process that writes them."""
