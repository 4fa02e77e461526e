"""Models beside each other, on one test set and under one budget."""
