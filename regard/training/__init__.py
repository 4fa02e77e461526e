"""The training loop, one for every family and task: it imports no task and knows no model."""
