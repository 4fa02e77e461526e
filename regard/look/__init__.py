"""Where a model looks: attention maps as text, figures and data, and the curves of a training run."""

from regard.look.map import AttentionMap

__all__ = ["AttentionMap"]
