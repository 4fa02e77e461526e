"""The legend of shapes, for the whole package.

Every line that changes the layout of a tensor ends with its shape in these letters:

    B  batch (rows, sources)          T  target or query length
    S  source or key length           D  width of the model
    H  heads                          G  key-value heads (G divides H)
    E  width of one head (D / H)      F  width of the feed-forward layer
    V  vocabulary                     L  layers
    W  beam (hypotheses of a source)  N  tokens, when rows and positions are flattened
    P  patches                        C  tokens in a chunk
"""
