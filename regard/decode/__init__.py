"""Logits to sequences: greedy search, beam search and sampling over any model that is a `Stepper`.

`search.generate` runs four small roles in turn: the stepper gives logits, `filters` remove what may not be said,
a `choice` proposes how each hypothesis goes on, and `ranking` keeps the best that have ended.
Nothing is imported here, so that `regard.decode.config` can be read without torch.
"""
