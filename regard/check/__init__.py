"""Faults of data, found before a model learns from it. Nothing here imports torch, but for pictures that are drawn."""
