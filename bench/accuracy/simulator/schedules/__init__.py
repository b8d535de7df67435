"""Training schedules as programs, one framework a file, with the functions and files their real stacks show."""
