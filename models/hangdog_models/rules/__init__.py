"""Dated rule files and the pure parser of their text."""
