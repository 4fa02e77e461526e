"""A family of sizes of one kind of model: planned, trained on several amounts of data each, and held against a power law."""
