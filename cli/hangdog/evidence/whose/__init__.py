"""Whose each piece of evidence is: by its name, by its text, by the job's layout, or by order alone."""
