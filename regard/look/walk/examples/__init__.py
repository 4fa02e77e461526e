"""Walks on paper: worked examples of lectures by name, and a person's own numbers from a file."""

from regard.look.walk.examples.table import EXAMPLES, Example, example_walk, file_walk

__all__ = ["EXAMPLES", "Example", "example_walk", "file_walk"]
