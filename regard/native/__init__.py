"""Kernels in C for what torch's operations are too many and too small for, compiled on the machine that runs them."""
