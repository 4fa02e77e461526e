"""Into a model: one reading of a text, and heads, walk, faithfulness, probes and formation that stand on it."""
