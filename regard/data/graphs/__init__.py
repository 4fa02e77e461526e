"""Graphs: files -> nodes, edges and features -> batches."""
