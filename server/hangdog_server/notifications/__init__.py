"""Tells people by chat, mail and a hundred other ways what has changed: once for each change, and never in the server's way."""
