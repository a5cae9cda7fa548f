"""The commands of `keras-transformer`: each module has `add_arguments(parser)` and `run(options) -> exit code`."""
