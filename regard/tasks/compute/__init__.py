"""Compute: a table and a question in, an answer out, and the program that gave it."""
