"""Takes rights away: from the agent itself, from the tools it starts, and from what opens files that trainers control.

A trainer belongs to somebody else, who may want the agent's rights. So nothing a trainer names is opened with them: a child
takes the trainer's user and groups first. These modules use the standard library only, so that such a child starts quickly.
"""
