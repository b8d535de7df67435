"""What a stretch of operation was like: how soon hangs are found and mended, of what kind they are, and which machines cause them.

`past.py`       what happened, as a server's store or the histories of `hangdog run` tell it
`report.py`     the report: figures, tallies and machines, each with its definition and with what it rests on
`reckoning.py`  from what a server remembers to the report
`evictions.py`  whether machines were named rightly, where that is known
`runs.py`       from the histories of `hangdog run` to the report
`sessions.py`   what a server saw of jobs through their agents, retold as such histories
`seen.py`       from these to figures
`told.py`       one stretch of a job's life, whoever tells of it
`training.py`   how much of its time a job trained, and what came of restarts, by such stretches
`watched.py`    when a job was watched, and when it did not train meanwhile
`chains.py`     restarts one after the other, whoever made them
`wording.py`    a figure in a few words
`document.py`   the report as JSON, and back
"""
