"""The server's ports: who may hold a connection, for how long, and which user of this machine it is."""
