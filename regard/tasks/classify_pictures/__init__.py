"""Classify pictures: labels, one for each."""
