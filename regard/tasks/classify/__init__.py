"""Classify texts: labels, one for each."""
