"""Generate: language models of any text."""
