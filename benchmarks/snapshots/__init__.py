"""The parts of benchmarks/snapshots.py."""
