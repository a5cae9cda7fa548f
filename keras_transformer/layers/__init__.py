"""The layers of the model, Section 3 of the paper.

Shapes, as the comments at the ends of lines write them:

    B batch   S source length   T target length   D d_model   H heads   K head width   F d_ff   V vocabulary
    W beam width   L slots of a cache: decoding steps * W   R rows and N columns of a product

A mask is boolean and explicit; True means "may attend". Its shape is (B or 1, queries or 1, keys).
Layers call no method of a model and know no text.
"""
