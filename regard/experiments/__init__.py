"""What lectures say of attention, as experiments: each a question, runs on built-in data, a figure and a computed answer."""
