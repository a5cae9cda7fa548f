"""The commands of `keras-transformer`: the module of each has `add_arguments(parser)` and `run(options)` -> exit code.

What several of them need is in `options.py` and `lines.py`.
"""
