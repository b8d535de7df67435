"""What follows from a verdict: decided by `policy.py`, written down, and carried out by `action_loop.py` and `execute.py`."""
