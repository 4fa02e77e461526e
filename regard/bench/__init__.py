"""Benchmarks of attention: time and memory over the length, and losses beyond the trained length."""
