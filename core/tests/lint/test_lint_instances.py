"""Instances of patterns: found for every node of the language, each matched, the same every time, within bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from byoc_core.ir import Constant, OpDef, OperandSpec, OpRegistry, TensorType, verify
from byoc_core.lint import find_instances
from byoc_core.ops import default_ops
from byoc_core.pattern import (
    Pattern,
    any_number,
    find_matches,
    is_const,
    is_extern,
    is_op,
    is_var,
    sequence,
    wildcard,
)

_X = wildcard()
_SPLIT = is_op("split")(wildcard())
_CONV = is_op("nn.conv2d")(wildcard(), is_const())
_SCORES = is_op("multiply")(is_op("matmul")(wildcard(), is_op("permute_dims")(wildcard())), is_const())
_PATTERNS: dict[str, Pattern] = {
    "one op": is_op("add")(wildcard(), wildcard()),
    "any operands": is_op("nn.relu")(is_op("nn.batch_norm")),
    "a chain": is_op("nn.relu")(is_op("nn.bias_add", "add")(_CONV, wildcard())),
    "optional": _CONV.optional(is_op("nn.relu", "tanh", "nn.gelu")),
    "one value twice": is_op("multiply")(_X, is_op("sigmoid")(_X)),
    "two results": is_op("multiply")(_SPLIT.result(0), is_op("sigmoid")(_SPLIT.result(1))),
    "a late result": is_op("squeeze")(is_op("nn.lstm").result(1)),
    "layers after reshapes": is_op("nn.dense")(is_op("reshape")(is_op("nn.max_pool2d")(_CONV)), is_const()),
    "attention": is_op("matmul")(is_op("nn.softmax")(_SCORES), wildcard()),
    "quantised": is_op("quantize")(
        is_op("nn.conv2d")(is_op("dequantize"), is_op("dequantize")(is_const(), is_const(), is_const())),
        is_const(),
        is_const(),
    ),
    "an attribute": is_op("nn.conv2d")(wildcard(), wildcard()).has_attr(data_layout="NHWC", strides=(2, 2)),
    "a test of an attribute": is_op("nn.conv2d")(wildcard(), wildcard()).has_attr(groups=lambda groups: groups > 1),
    "a dtype": is_op("nn.relu")(wildcard().has_dtype("int32")),
    "a rank": is_op("nn.relu")(wildcard().has_rank(5)),
    "a shape": is_op("nn.conv2d")(wildcard().has_shape(1, 3, 32, 32), is_const()),
    "names of sizes": is_op("nn.conv2d")(wildcard(), is_const().has_shape("o", "i", 1, 1)),
    "a square": is_op("add")(wildcard(), wildcard()).has_shape("n", "n"),
    "a number": is_op("multiply")(wildcard(), is_const(0.5)),
    "a condition of one's own": is_op("nn.relu")(wildcard().where(lambda value: value.type.rank == 4)),
    "variables": is_op("subtract")(is_var(), is_op("exp")(is_var())),
    "any number": is_op("concat")(any_number(is_op("nn.relu")(wildcard()), at_least=3)),
    "any number of leaves": is_op("concat")(is_op("exp")(wildcard()), any_number(wildcard())),
    "a sequence": sequence(_CONV, is_op("add", "multiply"), is_op("nn.relu")),
    "a reader": is_op("add")(wildcard(), wildcard()).used_by(is_op("nn.relu")),
    "readers of one kind": is_op("nn.conv2d")(wildcard(), wildcard()).only_used_by(is_op("nn.relu")),
    "an external call": is_op("nn.relu")(is_extern("fft")(wildcard())),
}


@pytest.mark.parametrize("name", _PATTERNS)
def test_every_node_of_the_language_has_instances_that_it_matches(name: str) -> None:
    instances = find_instances(_PATTERNS[name], default_ops())
    assert instances.failures == {}
    assert instances.found
    for instance in instances.found:
        verify(instance.module)
        (again, *_) = find_matches(_PATTERNS[name], instance.match.root, instance.match.index)
        assert set(map(id, again.bindings)) == set(map(id, instance.match.bindings))


def _kinds(pattern: Pattern) -> set[str]:
    return {instance.kind for instance in find_instances(pattern, default_ops()).found}


def test_instances_vary_in_dtype_rank_sizes_and_constants() -> None:
    found = find_instances(is_op("nn.relu")(is_op("matmul")(wildcard(), wildcard())), default_ops()).found
    results = [instance.match.root.result.type for instance in found]
    assert {type_.rank for type_ in results if isinstance(type_, TensorType)} >= {0, 1, 2, 3, 4}
    assert {instance.dtype for instance in found} >= {"float32", "float16", "bfloat16", "int8", "int4", "float8_e5m2"}
    assert {instance.kind for instance in found} == {"static", "symbolic", "constants"}
    for instance in found:
        inputs = instance.match.inputs
        symbolic = any(value.type.symbols for value in inputs if isinstance(value.type, TensorType))
        assert symbolic == (instance.kind == "symbolic")
        constant = any(isinstance(value, Constant) for value in inputs)
        assert constant if instance.kind == "constants" else not constant or instance.kind == "symbolic"
    assert any(isinstance(v, Constant) for i in found if i.kind == "symbolic" for v in i.match.inputs)


def test_conditions_bound_the_variation() -> None:
    found = find_instances(is_op("nn.relu")(wildcard().has_dtype("float16").has_rank(3)), default_ops()).found
    types = [instance.match.inputs[0].type for instance in found]
    assert {(type_.dtype, type_.rank) for type_ in types if isinstance(type_, TensorType)} == {("float16", 3)}
    assert _kinds(is_op("nn.relu")(wildcard().has_shape(2, 3))) == {"static", "constants"}


def test_every_alternative_is_read_once() -> None:
    pattern = is_op("nn.bias_add", "add")(_CONV, wildcard()).optional(is_op("nn.relu", "tanh"))
    found = find_instances(pattern, default_ops()).found
    assert list(dict.fromkeys(instance.reading for instance in found)) == [
        "nn.relu(add(nn.conv2d(*, const), *))",
        "add(nn.conv2d(*, const), *)",
        "tanh(add(nn.conv2d(*, const), *))",
        "nn.relu(nn.bias_add(nn.conv2d(*, const), *))",
    ]


@pytest.mark.parametrize(
    ("pattern", "failures"),
    [
        (
            is_op("logical_not")(is_op("sin")(wildcard())),
            {
                "logical_not(sin(*))": "op `logical_not`, operand `x=v0_0`: has a dtype not accepted by the op; "
                "got float32, expected a dtype of kind bool"
            },
        ),
        (
            is_op("nn.relu")(wildcard().where(lambda value: False, "a miracle")),
            {"nn.relu(*)": 'no candidate fits `*{a miracle}`; the first is R.Tensor((2, 3), "float32")'},
        ),
        (is_op("nn.relu")(is_op("nn.rleu")(wildcard())), {"nn.relu(nn.rleu(*))": "op `nn.rleu` is unknown"}),
        (
            is_op("split")(wildcard()).result(7),
            {"split(*).7": "op `split` has 2 results, but the pattern requires result 7"},
        ),
    ],
)
def test_what_no_function_fits_is_said_with_the_part_that_failed(pattern: Pattern, failures: dict[str, str]) -> None:
    instances = find_instances(pattern, default_ops())
    assert instances.found == ()
    assert instances.failures.keys() == failures.keys()
    for reading, text in failures.items():
        assert instances.failures[reading] == text


def test_a_reading_that_fails_does_not_hide_those_that_do_not() -> None:
    pattern = is_op("nn.relu", "logical_not")(is_op("exp")(wildcard()))
    instances = find_instances(pattern, default_ops())
    assert {instance.reading for instance in instances.found} == {"nn.relu(exp(*))"}
    assert list(instances.failures) == ["logical_not(exp(*))"]


def test_the_search_is_bounded() -> None:
    deep: Pattern = wildcard()
    for _ in range(12):
        deep = is_op("add", "subtract", "multiply")(deep, wildcard())
    instances = find_instances(is_op("logical_not")(is_op("exp")(deep)), default_ops())
    assert instances.found == ()
    assert len(instances.failures) <= 64
    assert set(instances.failures.values()) == {"the search stopped after 400 trials"}


def test_ops_of_a_backend_are_tried_on_plain_tensors() -> None:
    def infer(context: object) -> tuple[TensorType, ...]:
        return (TensorType((2, 3), "float32"),)

    own = OpDef("npu.blend", (OperandSpec("x"), OperandSpec("y")), infer)
    ops = OpRegistry([*default_ops().values(), own])
    found = find_instances(is_op("nn.relu")(is_op("npu.blend")(wildcard(), wildcard())), ops).found
    assert {instance.reading for instance in found} == {"nn.relu(npu.blend(*, *))"}


_PRINT = """
from byoc_core.lint import find_instances
from byoc_core.ops import default_ops
from byoc_core.pattern import is_op, wildcard
conv = is_op("nn.conv2d", "nn.conv1d", "matmul")(wildcard(), wildcard())
pattern = is_op("add", "nn.bias_add")(conv, wildcard()).optional(lambda x: is_op("nn.relu", "tanh")(x))
for instance in find_instances(pattern, default_ops()).found:
    print(instance.kind, instance, sorted(instance.module.constants))
"""


def test_instances_are_the_same_in_every_process() -> None:
    def run(seed: str) -> Sequence[str]:
        command = [sys.executable, "-c", _PRINT]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()

    first = run("0")
    assert len(first) > 50
    assert run("4242") == first
