"""Classify graphs: labels of the nodes of one, or of many whole ones."""
