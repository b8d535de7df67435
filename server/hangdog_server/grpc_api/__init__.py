"""The gRPC services: requests of agents and of the command line become nouns, and answers become messages."""
