"""JSON to arrays and back, in the two forms of TF Serving.

    {"instances": [{"text": "a"}, {"text": "b"}]}   row form       -> {"predictions": [{"score": 1.0, ...}, ...]}
    {"inputs": {"text": ["a", "b"]}}                column form    -> {"outputs": {"score": [1.0, 2.0], ...}}
    {"instances": ["a", "b"]}, {"inputs": ["a", "b"]}              the same, where a signature has a single input

With a single output its name is left out. Bytes are {"b64": "..."} going in, and coming out where the name of an
output ends in _bytes. NaN and Infinity are no JSON and are refused in both directions.
"""

import base64
import binascii
import json
import reprlib
from typing import Any, NamedTuple

import numpy as np

from export.serve import RequestError

_REPR = reprlib.Repr()  # of what came, in errors: neither long nor deep
_REPR.maxstring = 80


class Spec(NamedTuple):
    """What a signature says of a tensor."""

    dtype: np.dtype  # object for strings
    shape: tuple[int | None, ...]  # None: any size

    def __str__(self):
        sizes = ",".join("?" if size is None else str(size) for size in self.shape)
        return f"{'string' if self.dtype.kind == 'O' else self.dtype.name} [{sizes}]"


class Asked(NamedTuple):
    """A request that is JSON and has the right keys."""

    signature: str
    by_rows: bool
    values: Any  # below "instances" or "inputs"


# --- JSON to arrays


def read(body: bytes) -> Asked:
    asked = _parse(body)
    name = asked.get("signature_name", "serving_default")
    if not isinstance(name, str):
        raise _refusal(f"'signature_name' key must be a string value. Received: {_short(name)}")
    forms = [form for form in ("instances", "inputs") if form in asked]
    if not forms:
        raise _refusal("Missing 'inputs' or 'instances' key")
    if len(forms) == 2:
        raise _refusal("Expecting only one of 'inputs' or 'instances' keys. Received both")
    by_rows = forms == ["instances"]
    if by_rows and not (isinstance(asked["instances"], list) and asked["instances"]):
        raise _refusal(f"Expecting 'instances' to be a list with values. Received: {_short(asked['instances'])}")
    return Asked(name or "serving_default", by_rows, asked[forms[0]])


def arrays(asked: Asked, specs: dict[str, Spec]) -> dict[str, np.ndarray]:
    """The inputs by name, of equally many rows, as the signature wants them."""
    columns = _columns_of_rows(asked.values, specs) if asked.by_rows else _columns(asked.values, specs)
    inputs = {name: _array(name, columns[name], spec) for name, spec in specs.items()}
    sizes = {name: len(array) for name, array in inputs.items()}
    if len(set(sizes.values())) > 1:
        raise _refusal(f"Expecting inputs with the same number of rows. Received: {sizes}")
    return inputs


def _parse(body):
    try:
        asked = json.loads(body.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise _refusal("JSON Parse error: nested too deeply") from None
    except ValueError as error:
        raise _refusal(f"JSON Parse error: {error if body else 'The document is empty'}") from None
    if not isinstance(asked, dict):
        raise _refusal(f"Expecting a JSON object. Received: {_short(asked)}")
    return asked


def _no_constant(name):
    raise ValueError(f"{name} is not a JSON value")


def _columns(values, specs):
    if not isinstance(values, dict) or _is_base64(values):
        if len(specs) > 1:
            raise _refusal(f"'inputs' is a plain value, but the signature has the inputs {_names(specs)}")
        return {next(iter(specs)): values}
    if values.keys() != specs.keys():
        raise _refusal(f"The keys of 'inputs' must be {_names(specs)}. Received: {_names(values)}")
    return values


def _columns_of_rows(rows, specs):
    if not isinstance(rows[0], dict) or _is_base64(rows[0]):
        if len(specs) > 1:
            raise _refusal(f"'instances' is a plain list, but the signature has the inputs {_names(specs)}")
        return {next(iter(specs)): rows}
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != specs.keys():
            received = _names(row) if isinstance(row, dict) else _short(row)
            raise _refusal(f"The keys of element {index} of 'instances' must be {_names(specs)}. Received: {received}")
    return {name: [row[name] for row in rows] for name in specs}


def _array(name, value, spec):
    shape = _shape(value)
    fits = len(shape) == len(spec.shape) and all(
        wanted in (None, size) for size, wanted in zip(shape, spec.shape, strict=True)
    )
    if not fits:
        raise _refusal(f"Input {name!r} must be {spec}. Received shape: {shape}")
    level = [value]
    for size in shape:
        for item in level:
            if not isinstance(item, list) or len(item) != size:
                raise _refusal(f"Input {name!r} has rows of different sizes: expecting {size} values at {_short(item)}")
        level = [inner for item in level for inner in item]
    leaf = _LEAVES[spec.dtype.kind]
    try:
        leaves = [leaf(item, spec.dtype) for item in level]
    except ValueError as error:
        raise _refusal(f"Input {name!r} must be {spec}. Received: {error}") from None
    return np.array(leaves, spec.dtype).reshape(shape)


def _shape(value):
    """The shape of nested lists, by the first element of each level."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def _string(value, _):
    if _is_base64(value):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"{_short(value)}, which is not base64") from None
    if not isinstance(value, str):
        raise ValueError(_short(value))
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{_short(value)}, which is not Unicode (half a surrogate pair)") from None


def _integer(value, dtype):
    limits = np.iinfo(dtype)
    if type(value) is not int or not limits.min <= value <= limits.max:
        raise ValueError(_short(value))
    return value


def _decimal(value, dtype):
    if type(value) not in (int, float) or not abs(value) <= float(np.finfo(dtype).max):
        raise ValueError(_short(value))
    if type(value) is int and int(dtype.type(value)) != value:
        raise ValueError(f"{_short(value)}, which would lose digits")
    return value


def _boolean(value, _):
    if type(value) is not bool:
        raise ValueError(_short(value))
    return value


_LEAVES = {"O": _string, "i": _integer, "u": _integer, "f": _decimal, "b": _boolean}  # by kind of dtype


def _is_base64(value):
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _names(names):
    return ", ".join(_short(name) for name in sorted(names)[:9]) or "none"


def _short(value):
    return _REPR.repr(value)


def _refusal(message):
    return RequestError(400, message)


# --- arrays to JSON


def answer(outputs: dict[str, np.ndarray], by_rows: bool) -> dict:
    columns = {name: _plain(name, array) for name, array in outputs.items()}
    single = len(columns) == 1
    if not by_rows:
        return {"outputs": next(iter(columns.values())) if single else columns}
    rows = zip(*columns.values(), strict=True)
    return {"predictions": [row[0] if single else dict(zip(columns, row, strict=True)) for row in rows]}


def _plain(name, array):
    """An array as nested lists of values that JSON has."""
    if array.dtype.kind == "O":
        texts = [_text(name, value) for value in array.ravel()]
        return np.array(texts, object).reshape(array.shape).tolist()
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise RequestError(500, f"Output {name!r} has values that are not finite, which JSON does not have")
        return array.astype(str).astype(np.float64).tolist()  # 0.1 of 32 bits is 0.1 and not 0.10000000149011612
    return array.tolist()


def _text(name, value):
    return {"b64": base64.b64encode(value).decode()} if name.endswith("_bytes") else value.decode(errors="replace")
