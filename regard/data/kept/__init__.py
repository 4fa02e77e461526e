"""Texts that were read and encoded once, in files that are mapped and that all runs share."""
