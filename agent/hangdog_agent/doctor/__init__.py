"""`hangdog doctor`: whether processes can be captured here, and which setting to change if not."""
