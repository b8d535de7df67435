"""`python -m hangdog` is the `hangdog` command."""

from hangdog.start import main

main()
