"""What pictures of an incident show, put together before anything is drawn: merged stacks as an icicle, waits as a funnel."""
