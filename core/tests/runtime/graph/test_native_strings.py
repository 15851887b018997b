"""Kernels of strings and n-grams in C: the results and errors of the reference kernels, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.text_counts import LETTERS
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.extension import extension
from byoc_core.runtime.graph.native_kernels import native_kernels
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core.tests.hostile_texts import DAMAGED, EXPRESSIONS, as_strings, texts

NDArray = npt.NDArray[Any]
pytestmark = [
    pytest.mark.skipif(not native_kernels(), reason="the C extension is not built"),
    pytest.mark.interpreter,
]

_ITEMS = st.one_of(texts.map(str.encode), st.sampled_from(DAMAGED))
_TEXTS = st.lists(texts.map(str.encode), max_size=6)


def _outcome(kernel: Any, operands: Sequence[NDArray], attrs: Mapping[str, Any]) -> Any:
    try:
        results = kernel(*operands, **attrs)
    except ExecutionError as error:
        return str(error)
    arrays = results if isinstance(results, tuple) else (results,)
    assert all(array.flags.writeable for array in arrays)
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def _check(op: str, operands: Sequence[NDArray], attrs: Mapping[str, Any] | None = None) -> Any:
    """Compare the kernel in C with the reference kernel, also with constant operands, and return the outcome."""
    attrs, native, reference = attrs or {}, native_kernels()[op], KERNELS[op]
    assert isinstance(native, NumpyKernel)
    expected = _outcome(reference, operands, attrs)
    assert _outcome(native, operands, attrs) == expected
    dtypes, ranks = [operand.dtype for operand in operands], [operand.ndim for operand in operands]
    for kernel in (native, reference):
        for first in range(1, len(operands)):
            constants = [operand if index >= first else None for index, operand in enumerate(operands)]
            assert _outcome(kernel.form_for(dtypes, ranks, attrs, constants).call, operands, attrs) == expected
    return expected


@given(st.lists(_ITEMS, max_size=6), st.sampled_from(LETTERS[1:]), st.booleans())
@example(["\u03a3\u0391\u03a3 A\u03a3".encode(), b"\xed\xa0\x80A", b""], "lower", False)
def test_cases_are_those_of_unicode(items: list[bytes], case: str, is_strided: bool) -> None:
    data, lengths = as_strings(items)
    if is_strided:
        lengths = np.repeat(lengths, 2)[::2]
    _check("strings.change_case", (data, lengths), {"case": case})


@given(
    st.lists(st.one_of(texts.map(str.encode), st.sampled_from(DAMAGED)), max_size=5),
    st.sampled_from(EXPRESSIONS),
    st.integers(-1, 3),
    st.booleans(),
    st.sampled_from(["", "#", "p\u00e4d"]),
)
@example([b"a ", b"\xc3", b"\xa9"], ("matches", ("[a-z]+",)), 1, False, "#")  # UTF-8 as a whole, not each string
def test_tokens(
    items: list[bytes], kind: tuple[str, tuple[str, ...]], min_length: int, mark: bool, padding: str
) -> None:
    attrs = {"kind": kind[0], "expressions": kind[1], "min_length": min_length, "mark": mark, "padding": padding}
    outcome = _check("strings.token_spans", as_strings(items), attrs)
    if not isinstance(outcome, str):
        (_, shape, starts), (_, _, lengths), (_, _, pool) = outcome
        places = zip(np.frombuffer(starts, np.int64), np.frombuffer(lengths, np.int64), strict=True)
        assert shape[0] == len(items)
        assert all(0 <= start <= start + length <= len(pool) for start, length in places)


@given(hnp.arrays(np.uint8, st.integers(0, 9)), st.data())
def test_bytes_at_places(data: NDArray, draw: st.DataObject) -> None:
    shape = draw.draw(st.sampled_from([(0,), (3,), (2, 2), ()]))
    starts, lengths = (draw.draw(hnp.arrays(np.int64, shape, elements=st.integers(-1, 7))) for _ in range(2))
    _check("strings.take_spans", (data, starts, lengths))


@given(st.data(), st.sampled_from(["uint8", "float32", "complex128", "bool"]))
def test_ragged_rows(draw: st.DataObject, dtype: str) -> None:
    elements = np.arange(draw.draw(st.integers(0, 12))).astype(dtype)[:: draw.draw(st.sampled_from([1, 2, -1]))]
    index = st.sampled_from([np.int64, np.int32])
    lengths = draw.draw(hnp.arrays(draw.draw(index), st.integers(0, 4), elements=st.integers(-1, 4)))
    indices = draw.draw(hnp.arrays(draw.draw(index), st.integers(0, 5), elements=st.integers(-1, 4)))
    _check("ragged_take", (elements, lengths, indices))


@given(st.lists(_ITEMS, max_size=6), st.lists(_ITEMS, max_size=6), st.booleans())
def test_strings_among_keys(items: list[bytes], keys: list[bytes], has_matrix: bool) -> None:
    shared = [*items, *keys[:3]]
    strings = as_strings(shared, (len(shared), 1) if has_matrix else (-1,))
    _check("strings.key_index", (*strings, *as_strings(keys)))


def test_many_keys() -> None:
    keys = [f"{number * 7919:x}".encode() for number in range(5000)]
    outcome = _check("strings.key_index", (*as_strings([*reversed(keys), b"none"]), *as_strings(keys)))
    assert np.frombuffer(outcome[0][2], np.int64).tolist() == [*range(4999, -1, -1), 5000]


@st.composite
def _ngrams(draw: st.DrawFn, high: int) -> tuple[tuple[NDArray, ...], dict[str, Any]]:
    """Return items, sizes and columns of n-grams, and the attributes; the operands may be damaged."""
    sizes = np.array(draw(st.lists(st.integers(1, 3), max_size=6)), np.int64)
    items = draw(hnp.arrays(np.int64, int(sizes.sum()), elements=st.integers(-1, high)))
    num_columns = draw(st.integers(1, 5))
    columns = draw(hnp.arrays(np.int64, len(sizes), elements=st.integers(0, num_columns - 1)))
    damage = draw(st.sampled_from([None] * 5 + ["sizes", "columns"]))
    if damage == "sizes" and len(sizes):
        sizes[0] += draw(st.sampled_from([1, -sizes[0]]))
    if damage == "columns" and len(columns):
        columns[-1] = draw(st.sampled_from([-1, num_columns]))
    least = draw(st.integers(1, 3))
    attrs = {
        "num_columns": num_columns,
        "min_length": least,
        "max_length": least + draw(st.integers(0, 3)),
        "max_skip": draw(st.sampled_from([0, 1, 2, 5, 1 << 40])),
    }
    return (items, sizes, columns), attrs


@given(
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=6), elements=st.integers(-1, 3)),
    _ngrams(3),
)
def test_counts_of_ngrams(x: NDArray, grams: tuple[tuple[NDArray, ...], dict[str, Any]]) -> None:
    operands, attrs = grams
    _check("ngram_counts", (x, *operands), attrs)


@given(
    st.lists(st.one_of(texts.map(str.encode), st.sampled_from(DAMAGED)), max_size=4),
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(LETTERS),
    st.booleans(),
    st.sampled_from(["", "#", "ab"]),
    _ngrams(6),
)
def test_counts_of_tokens(
    items: list[bytes],
    kind: tuple[str, tuple[str, ...]],
    letters: str,
    mark: bool,
    padding: str,
    grams: tuple[tuple[NDArray, ...], dict[str, Any]],
) -> None:
    ngrams, counts = grams
    attrs = {"kind": kind[0], "expressions": kind[1], "mark": mark, "padding": padding, "letters": letters, **counts}
    keys = as_strings([b"a", b"ab", b"\x02", b"\x03", b"#", "\u00e9".encode()])
    for shape in ((len(items),), (len(items), 1)):
        operands = (*as_strings(items, shape), *keys, *ngrams)
        _check("strings.ngram_counts", operands, {**attrs, "min_characters": 1})


def test_tokens_of_a_text_are_counted() -> None:
    keys, columns = as_strings([b"red", b"apple"]), np.array([2, 0, 1])
    grams = (np.array([0, 1, 0, 1]), np.array([1, 1, 2]), columns)
    attrs = {"kind": "matches", "expressions": (r"\w+",), "mark": False, "padding": "#", "letters": "lower"}
    attrs |= {"min_characters": 1, "num_columns": 3, "min_length": 1, "max_length": 2, "max_skip": 0}
    strings = as_strings([b"RED apple, red", b"Apple red", b""])
    outcome = _check("strings.ngram_counts", (*strings, *keys, *grams), attrs)
    assert np.frombuffer(outcome[0][2], np.float32).reshape(3, 3).tolist() == [[1, 1, 2], [1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("strings.change_case", {"case": "lower"}), ("strings.token_spans", {"kind": "characters", "expressions": ()})],
)
@pytest.mark.parametrize("lengths", [[3], [-1, 4], [1, 2], [1 << 62, 1 << 62, 1 << 62, 1 << 62, 3]])
def test_lengths_that_do_not_fit_are_the_errors_of_the_reference(
    op: str, attrs: dict[str, Any], lengths: list[int]
) -> None:
    more = {"min_length": 1, "mark": False, "padding": ""} if op == "strings.token_spans" else {}
    outcome = _check(op, (np.zeros(2, np.uint8), np.array(lengths)), {**attrs, **more})
    assert isinstance(outcome, str)
    assert "has lengths that do not fit the bytes" in outcome


def test_the_extension_refuses_buffers_of_other_sizes() -> None:
    found = extension()
    assert found is not None
    data, odd, one, out = np.zeros(3, np.uint8), np.zeros(9, np.uint8), np.zeros(1, np.int64), np.zeros(2, np.int64)
    keys, tree = found.KeyTable(data[:0], one), found.GramTree(one[:0], one[:0], one[:0], 2)
    calls: tuple[Callable[[], object], ...] = (
        lambda: found.KeyTable(data, odd),
        lambda: found.KeyTable(data, one),
        lambda: keys.find(data, odd, out),
        lambda: keys.find(data, one, out),
        lambda: found.change_case(data, one, True, out),
        lambda: found.change_case(data, odd, True, odd),
        lambda: found.find_runs(data, one, b"", 1, False, False, 0),
        lambda: found.pack_strings(["a"], out),
        lambda: found.GramTree(odd, one, one, 2),
        lambda: found.GramTree(one, one, one, 2),  # a size of 0
        lambda: tree.count(one, 2, 1, 1, 0, np.zeros((2, 2), np.float32)),
        lambda: tree.count(one, 1, 1, 1, 0, np.zeros((1, 3), np.float32)),
        lambda: tree.count(one, 1, 0, 1, 0, np.zeros((1, 2), np.float32)),
        lambda: tree.count(one, 1, 1, 1, -1, np.zeros((1, 2), np.float32)),
        lambda: found.count_tokens(
            keys, tree, data, one, 0, bytes(256), 1, False, False, b"", 1, 1, 0, np.zeros(3, np.float32)
        ),
        lambda: found.count_tokens(
            keys, tree, data, one, 0, bytes(255), 1, False, False, b"", 1, 1, 0, np.zeros(2, np.float32)
        ),
    )
    for call in calls:
        with pytest.raises(ValueError):  # noqa: PT011 - the texts are for developers
            call()
