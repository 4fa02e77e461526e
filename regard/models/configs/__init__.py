"""The configuration of each family of models, one class a kind."""
