"""What pages draw beside their tables: stacks as an icicle, who waits as a funnel, how a job moved as a strip."""
