"""Campaigns of stop-time diagnostics: which machine of several is at fault, found by tests that the planner chooses.

requests.py holds what is asked, desk.py takes it in, suspecting.py finds out whom it is about and what is believed
beforehand, course.py leads one campaign from round to round, launching.py runs one launch on its machines, records.py
keeps every step before it begins, and report.py says what came of it. What machines were tested for outlives them: trials.py.
"""
