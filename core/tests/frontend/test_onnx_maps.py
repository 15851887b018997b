"""Sequences of maps: results of importers of plugins, passed through control flow and returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import CallError, FrontendError
from byoc_core.frontend.onnx import Imported, NodeContext
from byoc_core.runtime.maps import unpack_maps

pytestmark = pytest.mark.asks_for_plugins

X = np.arange(6, dtype=np.float32).reshape(2, 3)
STRINGS = """<opset_import: ["": 18, "maps": 1]>
g (float[n, 3] x, bool c) => (seq(map(string, float[])) y) {
    y = If (c) <
        then_branch = a () => (seq(map(string, float[])) p) { p = maps.Rows(x) },
        else_branch = b () => (seq(map(string, float[])) q) { z = Neg(x) q = maps.Rows(z) }
    >
}"""
INTEGERS = """<opset_import: ["": 18, "maps": 1]>
g (float[n, 3] x) => (seq(map(int64, float[])) y) { z = maps.Rows(x) y = Identity(z) }"""


@pytest.fixture
def register(look_again: Callable[[], None]) -> Callable[[Sequence[int] | Sequence[str]], None]:
    look_again()

    def add(keys: Sequence[int] | Sequence[str]) -> None:
        @byoc_core.register_op("maps", "Rows")
        def import_rows(node: NodeContext) -> Sequence[Imported]:
            return [node.map_sequence(keys, node.value(0))]

    return add


def test_keys_of_strings(register: Callable[..., None]) -> None:
    register(["a", "\u00e9", ""])
    model = onnx_backend.prepare(onnx.parser.parse_model(STRINGS), backends=[])
    (found,) = model.run([X, np.array(True)])
    assert found == [{"a": 0.0, "\u00e9": 1.0, "": 2.0}, {"a": 3.0, "\u00e9": 4.0, "": 5.0}]
    (negated,) = model.run([X, np.array(False)])
    assert negated[1] == {"a": -3.0, "\u00e9": -4.0, "": -5.0}


def test_keys_of_integers(register: Callable[..., None]) -> None:
    register([3, -1, 7])
    module = byoc_core.from_onnx(onnx.parser.parse_model(INTEGERS))
    assert module["main"].output_names == ("y.keys", "y.values")
    (found,) = onnx_backend.prepare(onnx.parser.parse_model(INTEGERS), backends=[]).run([X])
    assert found == [{3: 0.0, -1: 1.0, 7: 2.0}, {3: 3.0, -1: 4.0, 7: 5.0}]
    (nothing,) = onnx_backend.prepare(onnx.parser.parse_model(INTEGERS), backends=[]).run([X[:0]])
    assert list(nothing) == []


def test_maps_are_no_tensor(register: Callable[..., None]) -> None:
    register([1, 2, 3])
    text = INTEGERS.replace("Identity(z)", "Neg(z)")
    with pytest.raises(FrontendError, match="needs `z` as a tensor; got a sequence of maps"):
        byoc_core.from_onnx(onnx.parser.parse_model(text))


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(CallError, match=r"have keys that do not fit the values; got \(\(2,\), \(2, 3\)\)"):
        unpack_maps(np.arange(2), X)
    with pytest.raises(CallError, match="are another number of arrays; got 1, expected 2 or 3"):
        unpack_maps(X)
