"""What commands print, for people in a terminal."""
