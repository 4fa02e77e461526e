"""The walk: every number between a vector and what attention makes of it, step by step."""

from regard.look.walk.steps import Line, Numbers, Step, Walk

__all__ = ["Line", "Numbers", "Step", "Walk"]
