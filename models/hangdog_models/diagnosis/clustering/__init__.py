"""Near clustering: call sites that differ only by helper frames, depth or layer become one cluster; an odd rank stays
alone.

Start at `catalogue.clustering`. Exact classes come first (`exact_clusters`). A model then sees only their distinct
stacks, so the cost depends on call sites, not on ranks.
"""
