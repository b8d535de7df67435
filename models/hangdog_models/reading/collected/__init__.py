"""Takes apart what a collector wrote into one file: the output of many hosts, and logs that a log service exported."""
