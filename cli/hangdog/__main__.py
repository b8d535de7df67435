"""`python -m hangdog` is the `hangdog` command."""

from hangdog.main import main

main()
