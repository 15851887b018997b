"""The ops of the model in a part of a region."""

from __future__ import annotations

from collections import Counter

import pytest
from byoc_core.profiling import OpName
from byoc_core.profiling.program_work import OpWork
from byoc_core.profiling.sums import computed_ops
from byoc_core.runtime.parts import ops_text
from hypothesis import given
from hypothesis import strategies as st


def op(name: str, result: str, *inputs: str) -> OpWork:
    return OpWork(OpName(name, result, ""), frozenset(inputs), frozenset([result]), 1, 1, 1)


def results(ops: list[OpWork], *texts: str, outputs: str = "z") -> list[str]:
    """Return the results of the ops of each part, joined."""
    num_readers = Counter(name for each in ops for name in each.inputs)
    found = computed_ops(texts, ops, num_readers, frozenset(outputs))
    return ["".join(each.name.value for each in part) for part in found]


ATTENTION = [
    op("matmul", "q", "x"),
    op("matmul", "s", "q", "k"),
    op("nn.softmax", "w", "s"),
    op("matmul", "z", "w", "v"),
]


def test_an_op_in_place_of_several_computes_all_of_them() -> None:
    assert results(ATTENTION, "matmul q", "nn.attention z") == ["q", "swz"]


def test_ops_computed_along_without_a_name_are_in_no_part() -> None:
    assert results(ATTENTION, "matmul q", "matmul s\nmatmul z") == ["q", "sz"]


@pytest.mark.parametrize("outputs", ["z", "sz", "wz"])
def test_a_value_read_elsewhere_has_another_maker(outputs: str) -> None:
    if outputs == "z":
        ops = [*ATTENTION, op("exp", "y", "w")]
        assert results(ops, "nn.attention z", "exp y", outputs="yz") == ["z", "y"]
    else:
        assert results(ATTENTION, "nn.attention z", outputs=outputs) == ["wz" if outputs == "sz" else "z"]


def test_unknown_values_and_lines_without_ops_are_left_out() -> None:
    assert results(ATTENTION, "reorder", "copy unknown", "") == ["", "", ""]


def test_moves_of_a_value_computed_elsewhere_compute_nothing() -> None:
    """The copies around a convolution in another layout have the name of the convolution's result."""
    assert results([op("nn.conv2d", "z", "x")], "permute_dims z", "nn.conv2d z", "permute_dims z") == ["", "z", ""]
    quantised = [op("dequantize", "d", "q"), op("nn.conv2d", "z", "d")]
    assert results(quantised, "permute_dims z", "byte_conv2d z") == ["", "dz"]
    assert results([op("take", "z", "x")], "strided_slice z") == ["z"]
    assert results([op("permute_dims", "z", "x")], "permute_dims z") == ["z"]
    assert results([op("nn.adaptive_max_pool2d", "z", "x")], "nn.max_pool2d z", "cast z")[0] == "z"


@st.composite
def regions(draw: st.DrawFn) -> tuple[list[OpWork], list[str], frozenset[str]]:
    """Return random ops, parts naming some of these, some by another op's name, and the outputs."""
    names = [f"v{number}" for number in range(draw(st.integers(1, 12)))]
    ops = [
        op("add", name, *draw(st.sets(st.sampled_from(["x", *names[:number]]), max_size=3)))
        for number, name in enumerate(names)
    ]
    parts = draw(st.dictionaries(st.sampled_from(names), st.tuples(st.integers(0, 3), st.sampled_from(["add", "new"]))))
    texts = [ops_text((name, value) for value, (part, name) in parts.items() if part == number) for number in range(4)]
    return ops, texts, frozenset(draw(st.sets(st.sampled_from(names))))


@given(regions())
def test_each_op_is_in_one_part_at_most_and_hidden_ops_are_read_in_their_part_only(
    region: tuple[list[OpWork], list[str], frozenset[str]],
) -> None:
    ops, texts, outputs = region
    num_readers = Counter(name for each in ops for name in each.inputs)
    found = computed_ops(texts, ops, num_readers, outputs)
    assert len(found) == len(texts)
    assert max(Counter(id(each) for part in found for each in part).values(), default=0) <= 1
    for text, part in zip(texts, found, strict=True):
        named = {line.split(" ")[1]: line.split(" ")[0] for line in text.splitlines()}
        assert named.keys() <= {each.name.value for each in part}
        for each in part:
            value = each.name.value
            if value not in named:
                (reader,) = [other for other in ops if value in other.inputs]
                assert reader in part
                assert value not in outputs
                assert "new" in named.values()
        if "new" not in named.values():
            assert {each.name.value for each in part} == named.keys()
