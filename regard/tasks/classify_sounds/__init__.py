"""Classify sounds: a sound in, its label out."""
