"""Checkpoint shards kept in the memory of other machines: what a trainer imports, and the process that holds them."""
