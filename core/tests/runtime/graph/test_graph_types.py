"""Documents from files obey the type rules of their ops."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend.info import CompileContext
from byoc_core.errors import ArtifactError
from byoc_core.ir import COMPOSITE, Binding, Function, Var
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, canonical_cases, new_function
from byoc_core.opset.families import FAMILIES, KERNELS, find_op, ops_of
from byoc_core.runtime.graph.encoding import decode_document, encode_document

NAMES = sorted(canonical_cases(default_ops()))
INFERRED = [name for name in NAMES if not default_ops()[name].declares_results]
"""Ops with inferred result types, not declared types."""


def documents(name: str) -> Iterator[tuple[OpCase, Any]]:
    """Yield a document of one op for each case of the op, without and with symbols."""
    for case in canonical_cases(default_ops())[name]:
        for types in (case.types(), case.symbolic_types(), case.symbolic_types(everywhere=True)):
            function, _ = new_function(default_ops().find(name), types, case.attrs)
            translation = GraphCodegen().translate([function], CompileContext("host", None, {}))
            if translation.document.functions:
                yield case, json.loads(encode_document(translation.document))


def decode(data: object) -> object:
    return decode_document(json.dumps(data).encode())


@pytest.mark.parametrize("name", NAMES)
def test_what_the_compiler_writes_is_lawful(name: str) -> None:
    assert [decode(data) for _, data in documents(name)]


@pytest.mark.parametrize("name", INFERRED)
def test_no_size_of_a_result_may_be_another(name: str) -> None:
    tried = 0
    for _, data in documents(name):
        (node,) = data["functions"][0]["nodes"]
        for output in node["outputs"]:
            for axis, size in enumerate(output["shape"]):
                output["shape"][axis] = size + 1 if isinstance(size, int) else f"{size}+1"
                with pytest.raises(ArtifactError, match="breaks the type rule of the op"):
                    decode(data)
                output["shape"][axis] = size
                tried += 1
    assert tried or not any(types_of_rank(name))


def types_of_rank(name: str) -> Iterator[bool]:
    """Yield whether a result has axes, for each result of the cases."""
    for _, data in documents(name):
        yield from (bool(output["shape"]) for output in data["functions"][0]["nodes"][0]["outputs"])


@pytest.mark.parametrize("name", INFERRED)
def test_no_result_may_have_another_dtype(name: str) -> None:
    for _, data in documents(name):
        (node,) = data["functions"][0]["nodes"]
        node["outputs"][-1]["dtype"] = "complex64" if node["outputs"][-1]["dtype"] != "complex64" else "bool"
        with pytest.raises(ArtifactError):
            decode(data)


def pooling() -> Any:
    """Return the document of a two-dimensional pooling with right attributes."""
    return next(data for _, data in documents("nn.max_pool2d"))


ATTRIBUTES: list[tuple[Callable[[Any], object], str]] = [
    (lambda a: a.update(dilation=[-64, 1]), "attribute `dilation`: has a value out of range"),
    (lambda a: a.update(strides=[0, 1]), "attribute `strides`: has a value out of range"),
    (lambda a: a.update(padding=[0, 0, -1, 0]), "attribute `padding`: has a value out of range"),
    (lambda a: a.update(pool_size=[2, 2**62]), "of the padded image is smaller than the window"),
    (lambda a: a.update(pool_size=[2, 2**64]), "is an integer of more than 64 bits"),
    (lambda a: a.update(pool_size=[2]), "attribute `pool_size`: is not in the stored form"),
    (lambda a: a.update(pool_size=["2", 2]), "value of the wrong type"),
    (lambda a: a.update(layout="NHCW"), "value not permitted"),
    (lambda a: a.update(ceil_mode=1), "value of the wrong type"),
    (lambda a: a.update(size=1), "has no attribute `size`"),
]


@pytest.mark.parametrize(("change", "text"), ATTRIBUTES)
def test_an_attribute_that_no_compiler_writes(change: Callable[[Any], object], text: str) -> None:
    data = pooling()
    change(data["functions"][0]["nodes"][0]["attrs"])
    with pytest.raises(ArtifactError) as caught:
        decode(data)
    assert text in str(caught.value)
    assert "node 0 (`nn.max_pool2d`)" in str(caught.value)


def test_a_size_as_text_is_not_parsed() -> None:
    data = next(data for _, data in documents("reshape"))
    data["functions"][0]["nodes"][0]["attrs"]["shape"] = ["(a+b)*" * 1000 + "1"]
    with pytest.raises(ArtifactError, match="has a size as text"):
        decode(data)


def test_every_op_with_a_kernel_is_found() -> None:
    found = {name: find_op(name) for name in KERNELS}
    assert found == {name: default_ops()[name] for name in KERNELS}
    assert find_op("call") is None


@pytest.mark.interpreter
def test_looking_for_an_op_loads_its_family_only() -> None:
    script = """
import sys
from byoc_core.opset.families import FAMILIES, find_op
find_op("nn.lstm")
print([name for name in FAMILIES if f"byoc_core.opset.families.{name}" in sys.modules])
print([name for name in sys.modules if name.startswith(("byoc_core.ops.", "byoc_core.ir"))])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["['recurrence']", "[]"]


def test_the_list_of_each_family_is_what_it_defines() -> None:
    assert list(KERNELS) == [name for family in FAMILIES for name in ops_of(family)]


@pytest.mark.parametrize("name", NAMES)
def test_attributes_at_their_defaults_may_be_left_out(name: str) -> None:
    """Documents of older versions lack attributes added to an op later; engines and kernels see all attributes."""
    for _, data in documents(name):
        whole = decode_document(json.dumps(data).encode())
        (node,) = data["functions"][0]["nodes"]
        kept = {spec.name for spec in default_ops()[name].attrs if node["attrs"][spec.name] != _written(spec.default)}
        node["attrs"] = {key: value for key, value in node["attrs"].items() if key in kept}
        found = decode_document(json.dumps(data).encode())
        assert encode_document(found) == encode_document(whole)


def _written(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def test_attributes_of_bodies_may_be_left_out_too() -> None:
    case = default_ops()["nn.bias_add"].canonical_cases[0]
    function, binding = new_function(default_ops()["nn.bias_add"], case.types(), case.attrs, "body")
    outer = [Var(param.name, param.type) for param in function.params]
    attrs = COMPOSITE.normalise_attrs({"name": "mynpu.bias"})
    result = Var("y", binding.result.type)
    composite = Binding((result,), COMPOSITE, tuple(outer), attrs, (function,))
    whole = Function("main", tuple(outer), (composite,), (result,))
    document = GraphCodegen(composites="keep").translate([whole], CompileContext("host", None, {})).document
    data = json.loads(encode_document(document))
    (inner,) = data["functions"][0]["nodes"][0]["body"]["nodes"]
    assert inner["attrs"].pop("axis") == -1
    assert encode_document(decode_document(json.dumps(data).encode())) == encode_document(document)
