"""Readers of foreign evidence: text in, nouns out, one format a file; each raises nothing but UnreadableEvidence."""
