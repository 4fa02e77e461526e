"""Caption: a sentence for each picture."""
