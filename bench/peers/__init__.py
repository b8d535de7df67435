"""Other analysers of flight recorder dumps beside hangdog, on the same recordings."""
