"""Translate: pairs of texts."""
