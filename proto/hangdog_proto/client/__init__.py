"""How commands reach a server: the channel, the requests, and failures as our errors."""
