"""The reference supervisor of a training job: starts it, watches it, and carries out what the recovery ladder says.

`run_order.py`        what to run, where, and with which hooks
`attempt.py`          one start of the job: a process for each machine, its logs, and its end to the last process
`parent_death.py`     what each of those processes is before it becomes the job: bound to the supervisor's life
`logs.py`             follows the logs of the job, for people and for its steps
`watcher.py`          who watches the job, and the verdicts they come to; `local_cluster.py` a server and agents of its own
`run_options.py`      what the user's options and files say of the ladder's limits and of checkpoint copies
`spares.py`           which spares are free, and whether those that are to be used pass a test
`spare_upkeep.py`     has the spares tested and prepared ahead; `spare_notice.py` tells a person of one that failed
`background_command.py`  a command that runs beside the job, and that nothing waits for
`pending_changes.py`  changes of the code that wait to be merged
`outage_bill.py`      what each failure cost
`descendants.py`      descendants, found and ended
`hooks.py`            commands and webhooks by which a user's own tools carry out a step
`history_file.py`     the history, in a file that survives the supervisor
`supervisor.py`       the loop around all of that; what to do is decided in hangdog_models.recovery
"""
