"""The walk: every number between a vector and what attention makes of it, step by step."""

from regard.look.walk.steps import Numbers, Step, Walk, WorkedLine

__all__ = ["Numbers", "Step", "Walk", "WorkedLine"]
