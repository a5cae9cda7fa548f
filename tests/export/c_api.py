"""Loads a SavedModel as TensorFlow Serving does, in C++ and with XLA switched off, and answers requests.

    python c_api.py served/demo/1 LIBRARIES < requests.json > answers.json

LIBRARIES are libtensorflow_framework, libtensorflow_cc and those with further operations, one path after the other.
Requests are {"signatures": as of test_c_api.py, "requests": [[signature, {input: rows}], ...]}, and the answers
[{output: rows}, ...]. Exit code 77 where a library or a symbol is missing. No Python of TensorFlow is imported.
"""

import ctypes
import json
import sys
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p

import numpy as np

STRING_SIZE = 24  # bytes of a TF_TString
STRING = 7  # TF_STRING
DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 10: np.bool_}  # of TF_DataType
NUMBERS = {**{np.dtype(dtype).name: number for number, dtype in DTYPES.items()}, "string": STRING}
DISABLE_XLA = (
    "_ZN10tensorflow21DisableXlaCompilationEv"  # tensorflow::DisableXlaCompilation(), in main.cc of the server
)


class Output(ctypes.Structure):
    """TF_Output."""

    _fields_ = (("operation", c_void_p), ("index", c_int))


SIGNATURES = {  # function: what it returns, what it takes
    "TF_NewStatus": (c_void_p, []),
    "TF_GetCode": (c_int, [c_void_p]),
    "TF_Message": (c_char_p, [c_void_p]),
    "TF_LoadLibrary": (c_void_p, [c_char_p, c_void_p]),
    "TF_NewGraph": (c_void_p, []),
    "TF_DeleteGraph": (None, [c_void_p]),
    "TF_NewSessionOptions": (c_void_p, []),
    "TF_CloseSession": (None, [c_void_p, c_void_p]),
    "TF_DeleteSession": (None, [c_void_p, c_void_p]),
    "TF_LoadSessionFromSavedModel": (
        c_void_p,
        [c_void_p, c_void_p, c_char_p, POINTER(c_char_p), c_int, c_void_p, c_void_p, c_void_p],
    ),
    "TF_GraphOperationByName": (c_void_p, [c_void_p, c_char_p]),
    "TF_SessionRun": (
        None,
        [c_void_p, c_void_p] + [POINTER(Output), POINTER(c_void_p), c_int] * 2 + [c_void_p, c_int, c_void_p, c_void_p],
    ),
    "TF_AllocateTensor": (c_void_p, [c_int, POINTER(c_int64), c_int, c_size_t]),
    "TF_DeleteTensor": (None, [c_void_p]),
    "TF_TensorData": (c_void_p, [c_void_p]),
    "TF_TensorType": (c_int, [c_void_p]),
    "TF_NumDims": (c_int, [c_void_p]),
    "TF_Dim": (c_int64, [c_void_p, c_int]),
    "TF_StringInit": (None, [c_void_p]),
    "TF_StringCopy": (None, [c_void_p, c_char_p, c_size_t]),
    "TF_StringGetDataPointer": (c_void_p, [c_void_p]),
    "TF_StringGetSize": (c_size_t, [c_void_p]),
    DISABLE_XLA: (None, []),
}


class Library:
    """The functions of `SIGNATURES`, which stand in two files."""

    def __init__(self, paths):
        files = [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in paths]
        for name, (result, arguments) in SIGNATURES.items():
            function = next((getattr(file, name) for file in files if hasattr(file, name)), None)
            if function is None:
                raise OSError(f"no symbol {name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.status = self.TF_NewStatus()

    def check(self):
        if self.TF_GetCode(self.status):
            raise RuntimeError(self.TF_Message(self.status).decode())


class Session:
    """A loaded SavedModel."""

    def __init__(self, library, path):
        self.library, self.graph = library, library.TF_NewGraph()
        options, tags = library.TF_NewSessionOptions(), (c_char_p * 1)(b"serve")
        self.session = library.TF_LoadSessionFromSavedModel(
            options, None, path.encode(), tags, 1, self.graph, None, library.status
        )
        library.check()

    def close(self):
        self.library.TF_CloseSession(self.session, self.library.status)
        self.library.TF_DeleteSession(self.session, self.library.status)
        self.library.TF_DeleteGraph(self.graph)

    def run(self, signature, inputs):
        """{input: rows} -> {output: rows}"""
        library, sources, sinks = self.library, signature["inputs"], signature["outputs"]
        fed = (c_void_p * len(sources))(*(self.tensor(inputs[name], sources[name]["dtype"]) for name in sources))
        fetched = (c_void_p * len(sinks))()
        library.TF_SessionRun(
            *(self.session, None, self.places(sources), fed, len(fed), self.places(sinks), fetched, len(fetched)),
            *(None, 0, None, library.status),
        )
        library.check()
        rows = {name: self.rows(tensor) for name, tensor in zip(sinks, fetched, strict=True)}
        for tensor in [*fed, *fetched]:
            library.TF_DeleteTensor(tensor)
        return rows

    def places(self, tensors):
        """Where the tensors are in the graph: "name:index"."""
        names = [tensor["tensor"].split(":") for tensor in tensors.values()]
        find = self.library.TF_GraphOperationByName
        return (Output * len(names))(*(Output(find(self.graph, name.encode()), int(index)) for name, index in names))

    def tensor(self, rows, dtype):
        array = np.array(rows, object if dtype == "string" else dtype)
        size = array.size * (STRING_SIZE if dtype == "string" else array.itemsize)
        shape = (c_int64 * array.ndim)(*array.shape)
        tensor = self.library.TF_AllocateTensor(NUMBERS[dtype], shape, array.ndim, size)
        data = self.library.TF_TensorData(tensor)
        if dtype != "string":
            ctypes.memmove(data, np.ascontiguousarray(array).ctypes.data, size)
            return tensor
        for i, text in enumerate(array.ravel()):
            place, encoded = data + i * STRING_SIZE, text.encode("utf-8", "surrogateescape")
            self.library.TF_StringInit(place)
            self.library.TF_StringCopy(place, encoded, len(encoded))
        return tensor

    def rows(self, tensor):
        library = self.library
        shape = [library.TF_Dim(tensor, axis) for axis in range(library.TF_NumDims(tensor))]
        kind, data, count = library.TF_TensorType(tensor), library.TF_TensorData(tensor), int(np.prod(shape))
        if kind != STRING:
            dtype = np.dtype(DTYPES[kind])
            return np.frombuffer(ctypes.string_at(data, count * dtype.itemsize), dtype).reshape(shape).tolist()
        places = [data + i * STRING_SIZE for i in range(count)]
        texts = [
            ctypes.string_at(library.TF_StringGetDataPointer(place), library.TF_StringGetSize(place)).decode()
            for place in places
        ]
        return np.array(texts, object).reshape(shape).tolist()


def start(libraries):
    """The Library, with all operations and without XLA."""
    try:
        library = Library(libraries[:2])
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(77)
    for operations in libraries[2:]:
        library.TF_LoadLibrary(operations.encode(), library.status)
        library.check()
    getattr(library, DISABLE_XLA)()
    return library


def main(path, *libraries):
    library = start(libraries)
    session, asked = Session(library, path), json.load(sys.stdin)
    answers = [session.run(asked["signatures"][name], inputs) for name, inputs in asked["requests"]]
    assert "tensorflow" not in sys.modules
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
