"""What to do about a job that failed or hangs, step after step until it trains again or a person is called: pure.

    step = next_step(history, trouble, now, means, settings)     # recovery_ladder.py: one rung, and because of what
    history += (Stepped(now, number, step),)                     # recovery_history.py: written down before it is carried out
    ...                                                          # whoever supervises the job carries it out
    history += (Done(now, number, ok, convicted),)

A *trouble* is a verdict or an exit, as the ladder sees it (trouble.py). An *episode* is all that happened since the job last
trained for a while; each rung is climbed so many times in one (ladder_state.py), so that a person is always reached in the end.
Nothing but the history is remembered: read back from its file (journal.py), it gives the same step.
"""
