"""Fill: masked language models of any text."""
