"""The wire between agents, server and command line: generated messages and the one codec between them and the nouns."""
