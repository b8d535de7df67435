"""Sees trainers end, and tells a crash of their job from its usual end."""
