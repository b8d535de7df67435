"""A real small training job that is made to hang, with the whole of hangdog around it, on one machine without a GPU.

`job/`          the training job as a user would write it; it knows of no faults, only of its files and its live settings
`faults.py`     what can be done to one of its ranks from outside, and what the right verdict is
`conductor.py`  starts job, server and agents, breaks one rank, asks for a verdict and compares it with the truth
"""
