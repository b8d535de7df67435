"""Near clustering: places that differ only by helper frames, depth or layer become one cluster; the odd rank stays alone.

Start at `catalogue.clustering`. Exact classes come first (`diagnosis.cluster`); a model then sees their distinct stacks only,
so that its cost is that of the places and not of the ranks.
"""
