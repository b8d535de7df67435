"""What a stretch of operation was like: how soon hangs are found and mended, of what kind they are, and which machines cause them.

`past.py`       what happened, as a server's store or the histories of `hangdog run` tell it
`report.py`     the report: figures, tallies and machines, each with its definition and with what it rests on
`reckoning.py`  from what a server remembers to the report
`evictions.py`  whether machines were named rightly, where that is known
`runs.py`       from the histories of `hangdog run` to the report
`watched.py`    when a job was supervised, and when it did not train meanwhile
`chains.py`     restarts one after the other, by `hangdog run` and by people
`wording.py`    a figure in a few words
`document.py`   the report as JSON, and back
"""
