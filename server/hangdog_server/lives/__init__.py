"""What agents show of jobs' lives: when each begins, stands still and ends.

`life.py`     a session while it lasts
`seeing.py`   makes sessions of what agents announce, and of suspicions that a verdict does not deny; nothing waits
`keeping.py`  has them stored, by the server that leads the job
`rows.py`     the tables
"""
