"""The door for people: the `hangdog` command, and the same steps for Python programs in `hangdog.triage`."""
