"""The jobs that are simulated: their sizes, their pace, and where the code of their frameworks can be seen."""
