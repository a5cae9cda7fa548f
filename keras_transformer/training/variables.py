"""The variables of a run, by names that are the same in every process."""


def dropout_seeds(transformer):
    """The states of the generators that dropout draws from."""
    return [v for v in transformer.variables if "seed_generator" in v.path]


def named_variables(trainee):
    """Every variable that the course of a run depends on, by a name that is the same in every process."""
    weights = trainee.transformer.trainable_variables
    named = {f"model/{v.path}": v for v in weights}
    # Keras numbers the names of generators by process.
    named |= {f"seed/{i}": seed for i, seed in enumerate(dropout_seeds(trainee.transformer))}
    named |= {f"optimizer/{v.path}": v for v in trainee.optimizer.variables}
    named |= {f"average/{v.path}": average for v, average in zip(weights, trainee.ema, strict=False)}
    named["counter/num_skipped"] = trainee.num_skipped
    expected = len(trainee.transformer.variables) + len(trainee.optimizer.variables) + len(trainee.ema) + 1
    assert len(named) == expected, (len(named), expected)
    return named


def set_weights(model, weights):
    """Assigns {variable path: array} to the weights of a model; paths and shapes must be the model's."""
    variables = {variable.path: variable for variable in model.trainable_variables}
    if shapes(variables) != shapes(weights):
        different = sorted(dict(shapes(variables).items() ^ shapes(weights).items()))
        raise ValueError(f"Expected the weights of a model like this one. Different: {', '.join(different[:5])}.")
    for path, variable in variables.items():
        variable.assign(weights[path])


def shapes(weights):
    """{name: array} -> {name: its shape}"""
    return {name: array.shape for name, array in weights.items()}
