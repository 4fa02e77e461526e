"""Models laid out for decoding: nothing but products. The modules are the reference, and tests hold them equal."""
