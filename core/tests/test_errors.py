"""The error tree and the texts made from fields."""

from __future__ import annotations

import copy
import pickle
import re
from itertools import takewhile

import pytest
from byoc_core import errors
from byoc_core.errors import ByocError, near_names

pytestmark = pytest.mark.interpreter


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "file.onnx: is cut short"),
        ({"got": 3}, "file.onnx: is cut short; got 3"),
        ({"expected": 4}, "file.onnx: is cut short; expected 4"),
        ({"got": 3, "expected": 4}, "file.onnx: is cut short; got 3, expected 4"),
        ({"got": 0, "expected": ""}, "file.onnx: is cut short; got 0, expected "),
        ({"hint": "Copy it again."}, "file.onnx: is cut short. Copy it again."),
        ({"got": 3, "hint": "Copy it again."}, "file.onnx: is cut short; got 3. Copy it again."),
        ({"detail": "> line 1\n  line 2"}, "file.onnx: is cut short\n> line 1\n  line 2"),
        (
            {"got": 3, "expected": 4, "hint": "Copy it again.", "detail": "> 1"},
            "file.onnx: is cut short; got 3, expected 4. Copy it again.\n> 1",
        ),
    ],
)
def test_the_text_is_made_from_the_fields(fields: dict[str, str], text: str) -> None:
    error = ByocError("file.onnx", "is cut short", **fields)
    assert str(error) == text
    assert (error.where, error.problem) == ("file.onnx", "is cut short")


def test_the_drawn_tree_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in takewhile(lambda line: not line.startswith("Constructors"), (errors.__doc__ or "").splitlines()):
        match = re.match(r"^    ((?:[│ ]   )*)(?:[├└]── )?(\w+Error)\b", line)
        if match:
            depth = 0 if match[2] == "ByocError" else len(match[1]) // 4 + 1
            path[depth:] = [match[2]]
            drawn[match[2]] = path[depth - 1] if depth else "Exception"
    defined = {
        name: cls.__bases__[0].__name__
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, Exception)
    }
    assert drawn == defined
    assert set(errors.__all__) == {*defined, "near_names", "type_name"}


def test_an_error_survives_a_copy() -> None:
    error = errors.CallError("argument `x`", "has another rank", got=2, expected=3, hint="Reshape it.", detail="d")
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is errors.CallError
        assert str(again) == str(error)


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("dnl", ["dnnl", "ccompiler"], "Did you mean 'dnnl'?"),
        ("conv", ["conv1", "conv2", "conv3", "conv4"], "Did you mean 'conv4' or 'conv3' or 'conv2'?"),
        ("X", ["x", "y"], "Did you mean 'x'?"),
        ("xyz", ["dnnl"], ""),
        ("x", [], ""),
    ],
)
def test_near_names(name: str, known: list[str], text: str) -> None:
    assert near_names(name, known) == text
    assert near_names(name, reversed(known)) == text
