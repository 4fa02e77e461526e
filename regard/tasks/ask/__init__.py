"""Ask: a story and a question in, an answer out, and which sentences each hop read."""
