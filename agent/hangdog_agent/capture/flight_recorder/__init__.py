"""Has trainers tell their flight records, in a child that has their rights on files and no others."""
