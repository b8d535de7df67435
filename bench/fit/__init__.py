"""Fits the table of likelihoods to cases whose truth is known, and judges each world by numbers fitted without it."""
