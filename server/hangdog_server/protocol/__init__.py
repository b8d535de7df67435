"""The rules between agents and server: commands, rejections, rate limits, jobs as announced, what a disconnect means."""
