"""Programs that stand where a user's trainer stands: plain torch, nothing of hangdog's."""
