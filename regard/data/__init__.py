"""Files -> typed batches."""
