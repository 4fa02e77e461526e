"""The families of models."""
