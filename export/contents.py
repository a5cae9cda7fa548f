"""What a SavedModel holds, read from its file alone: nothing is loaded or run."""

from pathlib import Path


def operations(folder: Path) -> list[str]:
    """The names of all operations of a SavedModel."""
    graph = meta_graph(folder).graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return sorted({node.op for node in nodes} - {function.signature.name for function in graph.library.function})


def signatures(folder: Path) -> dict:
    """{signature: {"inputs": tensors, "outputs": tensors}}, tensors being {name: {"dtype", "shape"}}.

    An unknown size is null in "shape".
    """
    return {
        name: {"inputs": _tensors(signature.inputs), "outputs": _tensors(signature.outputs)}
        for name, signature in sorted(meta_graph(folder).signature_def.items())
        if not name.startswith("__")  # __saved_model_init_op has no inputs
    }


def _tensors(infos):
    from tensorflow import dtypes

    return {
        name: {
            "dtype": dtypes.as_dtype(info.dtype).name,
            "shape": [None if dimension.size < 0 else dimension.size for dimension in info.tensor_shape.dim],
        }
        for name, info in sorted(infos.items())
    }


def meta_graph(folder: Path):
    """The graph that a server takes, as a protobuf."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    path = folder / "saved_model.pb"
    graphs = SavedModel.FromString(path.read_bytes()).meta_graphs
    served = [graph for graph in graphs if "serve" in graph.meta_info_def.tags]
    if not served:  # as of an empty file, which is being copied
        raise ValueError(f"{path} must have a graph with the tag serve. Received: {len(graphs)} graphs without it.")
    return served[0]
