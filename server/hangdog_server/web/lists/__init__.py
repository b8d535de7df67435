"""The pages and the JSON of the lists: incidents, jobs, machines, actions."""
