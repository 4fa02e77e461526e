"""Answer: questions about pictures."""
