"""Commands of who is on call: jobs, incidents and machines, as a server knows them."""
