"""The agent's connection to a server: the stream, answers, and what is recorded while no server is there."""
