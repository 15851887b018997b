"""Mutants of artifacts: right digests, wrong content, and often consistent content."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from byoc_core.dims import DimExpr, parse_dim
from byoc_core.errors import ByocError
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.graph.encoding import decode_document

from core.tests.artifact.fuzzing.members import Members, program_of, with_program
from core.tests.artifact.fuzzing.retyping import retyped

__all__ = ["mutant"]

NUMBERS = (
    *range(-3, 10), 16, 63, 64, 65, -64, 127, 1000, 4096, 10**6, 10**9, -(10**9), 2**31 - 1, 2**31, 2**32,
    2**40, 2**61, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0.0, 1e300, {"float": "nan"}, {"float": "-inf"}, "", "n", "NCHW", "NHWC", "x", [], {}, [0],
    [1, 1], [2**62, 2**62], [-1, -1], {"dim": "n"}, {"dim": "n//0"}, {"dim": "2*n"}, {"dim": "n-9"}, "float64", "int8",
    "bool", "int4", "bfloat16", "float8_e4m3fn", "complex64", "string",
)  # fmt: skip
DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int32",
    "int64",
    "uint8",
    "bool",
    "int4",
    "float8_e4m3fn",
)
SIZES = ("n", "n+1", "2*n", "n-9", "n//2", "n%3", "max(n, 3)", "k", "n*n*n*n", "n-n//2*2")

Random = random.Random
_Path = tuple[Any, ...]


def mutant(members: Members, rng: Random) -> Members:
    """Return a mutant of an artifact, after one to four changes."""
    changed = dict(members)
    left = rng.choice((1, 1, 1, 2, 2, 3, 4))
    for _ in range(50):
        change = rng.choices(list(_CHANGES), list(_CHANGES.values()))[0]
        try:
            made = change(changed, rng)
        except (ByocError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            continue  # not of this kind, or what an earlier change has made cannot be changed like this
        left -= made != changed
        changed = made
        if not left:
            break
    return changed


# Trees of JSON and of dataclasses


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        yield data, key
        yield from _places(value)


def _leaves(value: object, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """Yield the places of all numbers, sizes and texts in a tree of frozen dataclasses and tuples."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    elif isinstance(value, int | str | DimExpr):
        yield path, value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.init:
                yield from _leaves(getattr(value, field.name), (*path, field.name))


def _replaced(value: Any, path: _Path, made: Any) -> Any:
    if not path:
        return made
    head, *rest = path
    if isinstance(value, tuple):
        return (*value[:head], _replaced(value[head], tuple(rest), made), *value[head + 1 :])
    return dataclasses.replace(value, **{head: _replaced(getattr(value, head), tuple(rest), made)})


# Payloads


def _payload(members: Members, rng: Random) -> str:
    return rng.choice([name for name in members if name.startswith("modules/")])


def _read(payload: bytes) -> tuple[bytes, Any]:
    """Return the bytes before a JSON payload, and the JSON."""
    head, brace, _ = payload.partition(b"{")
    if not brace or len(head) > 100:
        raise ValueError("no JSON")
    return head, json.loads(payload[len(head) :])


def _written(head: bytes, data: object) -> bytes:
    return head + json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _nodes(data: object) -> list[Any]:
    return [holder[key] for holder, key in _places(data) if isinstance(holder[key], dict) and "attrs" in holder[key]]


def change_any_place(members: Members, rng: Random) -> Members:
    name = _payload(members, rng)
    head, data = _read(members[name])
    holder, key = rng.choice(list(_places(data)))
    old = holder[key]
    is_number = isinstance(old, int) and not isinstance(old, bool)
    holder[key] = rng.choice(NUMBERS) if is_number and rng.random() < 0.8 else copy.deepcopy(rng.choice(VALUES))
    return {**members, name: _written(head, data)}


def change_attribute(members: Members, rng: Random) -> Members:
    """Change an attribute, and most often the inferred types, everywhere."""
    name = _payload(members, rng)
    for _ in range(rng.choice((1, 20))):  # one time of two until the rules of all ops hold
        head, data = _read(members[name])
        node = rng.choice([node for node in _nodes(data) if node["attrs"]])
        key = rng.choice(list(node["attrs"]))
        node["attrs"][key] = _other_value(node["attrs"][key], rng)
        made = _with_types(members, name, head, data, rng)
        if made[name] != members[name] and _is_lawful(made[name][len(head) :]):
            break
    return made


def _is_lawful(document: bytes) -> bool:
    try:
        decode_document(document)
    except ByocError:
        return False
    return True


def _other_value(value: Any, rng: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, -value, rng.choice(NUMBERS)))
    if isinstance(value, float):
        return rng.choice((0.0, -value, 1e30, {"float": "nan"}))
    if isinstance(value, list) and value:
        made, index = list(value), rng.randrange(len(value))
        if rng.random() < 0.2:
            return made + made[:1] if rng.random() < 0.5 else made[1:]
        made[index] = _other_value(made[index], rng)
        return made
    return copy.deepcopy(rng.choice(VALUES))


def change_node(members: Members, rng: Random) -> Members:
    name = _payload(members, rng)
    head, data = _read(members[name])
    node = rng.choice(_nodes(data))
    if rng.random() < 0.5:
        node["op"] = rng.choice(sorted(KERNELS))
        if rng.random() < 0.5:
            node["attrs"] = {}
    else:
        node["inputs"] = [rng.randrange(8) for _ in range(rng.choice((len(node["inputs"]), 1, 2, 3)))]
    return _with_types(members, name, head, data, rng)


def _with_types(members: Members, name: str, head: bytes, data: Any, rng: Random) -> Members:
    """Return members with a changed document; three times in four with the inferred types, also in the program."""
    if rng.random() < 0.25:
        if rng.random() < 0.7:
            for output in rng.choice(_nodes(data))["outputs"]:
                if output["shape"]:
                    output["shape"][rng.randrange(len(output["shape"]))] = rng.choice(NUMBERS)
        return {**members, name: _written(head, data)}
    shapes = retyped(data)
    return _with_shapes({**members, name: _written(head, data)}, shapes)


def _with_shapes(members: Members, shapes: Mapping[tuple[Any, ...], tuple[Any, ...]]) -> Members:
    """Return members with other shapes in the program, and large enough storages."""
    program = program_of(members)
    for path, value in list(_leaves(program)):
        if "storages" in path and isinstance(value, int):
            program = _replaced(program, path, max(value, value * 4 if value < 2**20 else value))
    for function_index, function in enumerate(program.functions):
        for field in ("params", "results", "tensors", "views", "dynamics"):
            for index, item in enumerate(getattr(function, field)):
                shape = shapes.get(tuple(map(str, item.shape)))
                if shape is not None:
                    made = tuple(parse_dim(size) for size in shape)
                    program = _replaced(program, ("functions", function_index, field, index, "shape"), made)
    return with_program(members, program)


def change_size(members: Members, rng: Random) -> Members:
    """Change a size everywhere: in shapes, in attributes perhaps, in the program and the manifest."""
    program = program_of(members)
    known = [value for path, value in _leaves(program) if "shape" in path and isinstance(value, int)]
    old, new = rng.choice(known), rng.choice((rng.choice(known), rng.choice(NUMBERS)))
    in_attrs = rng.random() < 0.5
    changed = dict(members)
    for name in [name for name in members if name.startswith("modules/")]:
        try:
            head, data = _read(members[name])
        except ValueError:
            words = members[name].split(b" ") if b"\0" not in members[name] else []
            lines = b" ".join(str(new).encode() if word == str(old).encode() else word for word in words)
            changed[name] = lines or members[name]
            continue
        lists = [holder[key] for holder, key in _places(data) if key == "shape" or in_attrs]
        for items in lists:
            if isinstance(items, list):
                items[:] = [new if type(item) is int and item == old else item for item in items]
        changed[name] = _written(head, data)
    for path, value in list(_leaves(program)):
        if "shape" in path and value == old and "constants" not in path:
            program = _replaced(program, path, new)
        elif "storages" in path and isinstance(value, int) and old and new > old and new < 2**20:
            program = _replaced(program, path, value * (new // old + 1))
    return with_program(changed, program)


def change_dtype(members: Members, rng: Random) -> Members:
    """Change a dtype everywhere."""
    old, new = rng.choice(("float32", "int64")), rng.choice(DTYPES)
    changed = dict(members)
    for name in [name for name in members if name.startswith("modules/")]:
        if b"\0" not in members[name]:
            changed[name] = members[name].replace(f'"{old}"'.encode(), f'"{new}"'.encode())
    program = program_of(members)
    for path, value in list(_leaves(program)):
        if path[-1] == "dtype" and value == old and "constants" not in path[:1]:
            program = _replaced(program, path, new)
    return with_program(changed, program)


def change_words(members: Members, rng: Random) -> Members:
    """Change words of a payload of text."""
    name = _payload(members, rng)
    if b"\0" in members[name] or members[name].lstrip()[:1] == b"{":
        raise ValueError("no text of words")
    lines = members[name].split(b"\n")
    index = rng.randrange(len(lines))
    words = lines[index].split(b" ")
    others = [word for line in lines for word in line.split(b" ")]
    words[rng.randrange(len(words))] = rng.choice((rng.choice(others), str(rng.choice(NUMBERS)).encode()))
    lines[index] = b" ".join(words)
    return {**members, name: b"\n".join(lines)}


# Programs


def change_program(members: Members, rng: Random) -> Members:
    """Change a number, a size or a name of the program; the manifest follows."""
    program = program_of(members)
    path, value = rng.choice(list(_leaves(program)))
    made: Any = rng.choice(NUMBERS)
    if isinstance(value, str):
        made = rng.choice(DTYPES) if path[-1] == "dtype" else rng.choice(("x", "y", "main", "region0", value))
    elif not any(part in ("shape", "storages", "offset", "strides") for part in path):
        made = rng.choice((max(0, value + rng.choice((-1, 1))), rng.randrange(12)))
    elif rng.random() < 0.3:
        made = parse_dim(rng.choice(SIZES))
    elif isinstance(value, int) and rng.random() < 0.5:
        made = max(0, value + rng.choice((-64, -1, 1, 64)))
    return with_program(members, _replaced(program, path, made))


def change_code(members: Members, rng: Random) -> Members:
    """Drop, repeat or swap instructions, tensors or views."""
    program = program_of(members)
    index = rng.randrange(len(program.functions))
    field = rng.choice(("code", "code", "tensors", "views", "storages", "params", "results"))
    items = list(getattr(program.functions[index], field))
    place = rng.randrange(len(items))
    match rng.randrange(3):
        case 0:
            del items[place]
        case 1:
            items.insert(rng.randrange(len(items) + 1), items[place])
        case _:
            other = rng.randrange(len(items))
            items[place], items[other] = items[other], items[place]
    return with_program(members, _replaced(program, ("functions", index, field), tuple(items)))


# Bytes and manifests


def change_bytes(members: Members, rng: Random) -> Members:
    name = rng.choice([name for name in members if name == "program" or name.startswith("modules/")])
    data = bytearray(members[name])
    start = rng.randrange(len(data))
    data[start : start + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    return {**members, name: bytes(data)}


def change_manifest(members: Members, rng: Random) -> Members:
    manifest = json.loads(members["manifest.json"])
    holder, key = rng.choice(list(_places(manifest)))
    holder[key] = rng.choice(NUMBERS) if rng.random() < 0.3 else copy.deepcopy(rng.choice(VALUES))
    return {**members, "manifest.json": json.dumps(manifest).encode()}


_CHANGES: Mapping[Callable[[Members, Random], Members], int] = {
    change_attribute: 30,
    change_node: 8,
    change_size: 12,
    change_any_place: 10,
    change_dtype: 4,
    change_words: 8,
    change_program: 16,
    change_code: 8,
    change_bytes: 2,
    change_manifest: 2,
}
"""The kinds of change, with their weights."""
