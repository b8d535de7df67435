"""Campaigns of stop-time diagnostics: which machine of several is at fault, found by tests that the planner chooses.

campaign_request.py holds what is asked, campaign_registry.py takes it in, suspects.py finds out whom it is about and what is believed
beforehand, campaign_run.py leads one campaign from round to round, launch.py runs one launch on its machines, store/campaigns.py
keeps every step before it begins, and campaign_report.py says what came of it. What machines were tested for outlives them: store/test_results.py.
"""
