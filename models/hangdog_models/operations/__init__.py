"""What a stretch of operation was like: how soon hangs are found and mended, of what kind they are, and which machines cause them.

`past_events.py`        what happened, as a server's store or the histories of `hangdog run` tell it
`report.py`             the report: figures, tallies and machines, each with its definition and with what it rests on
`compute.py`            from what a server remembers to the report
`evictions.py`          whether machines were named rightly, where that is known
`run_histories.py`      from the histories of `hangdog run` to the report
`session_histories.py`  what a server saw of jobs through their agents, retold as such histories
`server_figures.py`     from these to figures
`training_time.py`      how much of its time a job trained, and what came of restarts, by stretches of its life that are known without a gap
`watch_periods.py`      when a job was watched, and when it did not train meanwhile
`restart_chains.py`     restarts one after the other, whoever made them
`figure_text.py`        a figure in a few words
`report_json.py`        the report as JSON, and back
"""
