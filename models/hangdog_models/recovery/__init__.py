"""What to do about a job that failed or hangs, step after step until it trains again or a person is called: pure.

    step = next_step(history, trouble, now, resources, settings) # recovery_ladder.py: one rung, and its reason
    history += (Stepped(now, number, step),)                     # recovery_history.py: stored before it is carried out
    ...                                                          # the supervisor of the job carries it out
    history += (Done(now, number, ok, convicted),)

A *trouble* is a verdict or an exit, as the ladder sees it (trouble.py). An *episode* is all that happened since the job last
trained for a while. Each rung has a limit per episode (ladder_state.py), so a person is always reached in the end. The
history is the only state: read back from its file (journal.py), it gives the same step.
"""
