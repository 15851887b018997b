"""The laws of lowered functions: broken laws are named with function, statement, buffer and elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from byoc_core.backend.lowering import LoweringBuilder
from byoc_core.dims import Dim, symbol
from byoc_core.errors import CodegenError
from byoc_core.ir import tensor

from core.tests.lowered_toys import builder_of

N = symbol("n")
Fill = Callable[[LoweringBuilder], object]


def text_of(size: str, more: str = "") -> str:
    return f"def f(x: R.Tensor(({size},)){more}):\n    y = R.nn.relu(x)\n    return y\n"


def message_of(fill: Fill, size: str = "8") -> str:
    builder = builder_of(text_of(size))
    fill(builder)
    with pytest.raises(CodegenError) as caught:
        builder.finish()
    return str(caught.value)


def write(builder: LoweringBuilder, start: Dim, size: Dim) -> None:
    """Write a part of the output."""
    builder.call_extern("put", builder.outputs[0].part(start, size).written())


def parts(*spans: tuple[Dim, Dim]) -> Fill:
    """Write parts of the output, given by start and size."""

    def fill(builder: LoweringBuilder) -> None:
        for start, size in spans:
            write(builder, start, size)

    return fill


def behind(first: Fill, *others: Fill) -> Fill:
    def fill(builder: LoweringBuilder) -> None:
        for part in (first, *others):
            part(builder)

    return fill


def by_loop(extent: Dim, start: Callable[[Dim], Dim], size: Dim) -> Fill:
    def fill(builder: LoweringBuilder) -> None:
        with builder.loop(extent) as index:
            write(builder, start(index), size)

    return fill


ACCEPTED: dict[str, tuple[str, Fill]] = {
    "whole": ("8", parts((0, 8))),
    "symbolic": ('"n"', parts((0, N))),
    "two parts": ("8", parts((3, 5), (0, 3))),
    "overlapping parts": ("8", parts((0, 5), (4, 4))),
    "a gap closed later": ("8", parts((0, 2), (5, 3), (2, 3))),
    "symbolic parts": ('"n+8"', parts((N, 8), (0, N))),
    "a loop": ("8", by_loop(8, lambda i: i, 1)),
    "a loop of tiles": ("8", by_loop(4, lambda i: 2 * i, 2)),
    "a loop of overlapping tiles": ("8", by_loop(7, lambda i: i, 2)),
    "a symbolic loop": ('"n"', by_loop(N, lambda i: i, 1)),
    "a symbolic loop of tiles": ('"4*n"', by_loop(N, lambda i: 4 * i, 4)),
    "a loop writing the same": ("8", by_loop(3, lambda _: 0, 8)),
    "a loop and a part": ("8", behind(by_loop(3, lambda i: i, 1), parts((3, 5)))),
    "a quotient": ('"n"', parts((0, N // 2), (N // 2, N - N // 2))),
    "a symbolic loop over windows": ('"n+2"', behind(by_loop(N, lambda i: i, 3), parts((0, N), (N, 2)))),
    "no element": ("0", parts((0, 0))),
    "a size below zero is left to the call": ('"n-2"', lambda b: b.call_extern("put", b.outputs[0].written())),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_complete_outputs(name: str) -> None:
    size, fill = ACCEPTED[name]
    builder = builder_of(text_of(size))
    fill(builder)
    assert builder.finish().statements


NOT_COMPLETE: dict[str, tuple[str, Fill, str]] = {
    "a part": ("8", parts((0, 7)), "0 to 7"),
    "a gap": ("8", parts((0, 3), (4, 4)), "0 to 3, 4 to 8"),
    "a symbolic part": ('"n+1"', parts((0, N)), "0 to n"),
    "a loop with gaps": ("8", by_loop(4, lambda i: 2 * i, 1), "none"),
    "a loop perhaps without a round": ('"n"', by_loop(N, lambda _: 0, N), "none"),
    "a loop too short": ("8", by_loop(7, lambda i: i, 1), "0 to 7"),
    "only symbolically equal": ('"n"', parts((0, N // 2), (N // 2, N // 2)), f"0 to {2 * (N // 2)}"),
}


@pytest.mark.parametrize("name", NOT_COMPLETE)
def test_incomplete_outputs(name: str) -> None:
    size, fill, spans = NOT_COMPLETE[name]
    assert message_of(fill, size) == (
        f"function `f`: output `y` is not written completely; got elements written so far: {spans}"
    )


def test_an_output_without_a_statement() -> None:
    builder = builder_of("def f(x: R.Tensor((2,))):\n    y = R.nn.relu(x)\n    z = R.negative(x)\n    return y, z\n")
    builder.call_extern("put", builder.outputs[0].written())
    with pytest.raises(CodegenError) as caught:
        builder.finish()
    assert str(caught.value) == (
        "function `f`: output `z` is not written completely; got elements written so far: none"
    )


READS: dict[str, tuple[Fill, str]] = {
    "unwritten": (
        lambda b: b.call_extern("put", b.allocate(tensor((8,)), "t"), b.outputs[0].written()),
        "call of `put`: reads elements 0 to 8 of `t` before the first write; got elements written so far: none",
    ),
    "updated": (
        lambda b: b.call_extern("put", b.outputs[0].updated()),
        "call of `put`: reads elements 0 to 8 of `y` before the first write; got elements written so far: none",
    ),
    "beyond": (
        behind(parts((0, 4)), lambda b: b.call_extern("put", b.outputs[0].part(2, 3).updated())),
        "call of `put`: reads elements 2 to 5 of `y` before the first write; got elements written so far: 0 to 4",
    ),
    "copied": (
        lambda b: b.copy(b.allocate(tensor((8,)), "t"), b.outputs[0]),
        "copy to `y`: reads elements 0 to 8 of `t` before the first write; got elements written so far: none",
    ),
}


@pytest.mark.parametrize("name", READS)
def test_reads_before_the_first_write(name: str) -> None:
    fill, text = READS[name]
    assert message_of(fill) == f"function `f`, {text}"


def test_a_round_reads_elements_of_the_same_round_only() -> None:
    def read(builder: LoweringBuilder, shift: int) -> None:
        t = builder.allocate(tensor((8,)), "t")
        with builder.loop(7) as index:
            builder.call_extern("put", t.part(index + 1, 1).written())
            builder.call_extern("get", t.part(index + shift, 1), builder.outputs[0].part(index, 2).written())

    builder = builder_of(text_of("8"))
    read(builder, 1)
    builder.finish()
    assert message_of(lambda b: read(b, 0)) == (
        "function `f`, call of `get`: reads elements index_0 to index_0+1 of `t` before the first write; "
        "got elements written so far: index_0+1 to index_0+2"
    )


OUTSIDE: dict[str, tuple[str, Fill, str, str]] = {
    "beyond": ("8", parts((4, 5)), "4 to 9", "8"),
    "before": ("8", parts((-1, 2)), "-1 to 1", "8"),
    "negative size": ("8", parts((4, -1)), "4 to 3", "8"),
    "symbolic": ('"n"', parts((1, N)), "1 to n+1", "n"),
    "last round": ("8", by_loop(4, lambda i: 2 * i, 3), "2*index_0 to 2*index_0+3", "8"),
    "first round": ("8", by_loop(4, lambda i: i - 1, 1), "index_0-1 to index_0", "8"),
    "perhaps fewer": ('"n"', parts((0, 1)), "0 to 1", "n"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_parts_outside_of_the_buffer(name: str) -> None:
    size, fill, elements, total = OUTSIDE[name]
    assert message_of(fill, size) == (
        f"function `f`, call of `put`: writes elements {elements} of `y`, not provably inside the buffer; "
        f"got {total} elements"
    )


def test_an_index_may_run_backwards_and_in_nested_loops() -> None:
    builder = builder_of(text_of("24"))
    with builder.loop(2) as i, builder.loop(3) as j, builder.loop(4) as k:
        builder.call_extern("put", builder.outputs[0].part(12 * i + 4 * j + k, 1).written())
    with builder.loop(24) as i:
        builder.call_extern("put", builder.inputs[0].part(23 - i, 1), builder.outputs[0].part(23 - i, 1).updated())
    builder.finish()


def test_symbolic_loops_nest() -> None:
    builder = builder_of('def f(x: R.Tensor(("n", "m", 4))):\n    y = R.nn.relu(x)\n    return y\n')
    n, m = symbol("n"), symbol("m")
    with builder.loop(n) as i, builder.loop(m) as j, builder.loop(4) as k:
        offset = 4 * m * i + 4 * j + k
        builder.call_extern("put", builder.inputs[0].part(offset, 1), builder.outputs[0].part(offset, 1).written())
    with builder.loop(n * m) as i:
        builder.call_extern("put", builder.outputs[0].part(4 * (n * m - 1 - i), 4).updated())
    builder.finish()


def test_the_extent_of_a_loop_may_contain_the_index_outside() -> None:
    builder = builder_of(text_of("8"))
    write(builder, 0, 8)
    with builder.loop(8) as i, builder.loop(i + 1) as j:
        builder.call_extern("put", builder.outputs[0].part(j, 1).updated())
    builder.finish()

    def beyond(builder: LoweringBuilder) -> None:
        write(builder, 0, 8)
        with builder.loop(8) as i, builder.loop(i + 2) as j:
            builder.call_extern("put", builder.outputs[0].part(j, 1).updated())

    assert "updates elements index_1 to index_1+1 of `y`, not provably inside" in message_of(beyond)


def test_inputs_and_constants_are_never_changed() -> None:
    assert message_of(lambda b: b.call_extern("put", b.inputs[0].updated())) == (
        "function `f`, call of `put`: updates `x`, never changed; got input"
    )
    assert message_of(behind(parts((0, 8)), lambda b: b.copy(b.outputs[0], b.inputs[0]))) == (
        "function `f`, copy to `x`: writes `x`, never changed; got input"
    )
    assert message_of(lambda b: b.call_extern("put", b.constant([0.0], "table").written())) == (
        "function `f`, call of `put`: writes `table`, never changed; got constant"
    )


OVERLAPS: dict[str, tuple[Fill, str]] = {
    "the same": (
        lambda b: b.call_extern("put", b.outputs[0].part(0), b.outputs[0].written()),
        "0 to 8 of `y` and elements 0 to 8",
    ),
    "by an element": (
        lambda b: b.call_extern("put", b.outputs[0].part(0, 5), b.outputs[0].part(4, 4).written()),
        "0 to 5 of `y` and elements 4 to 8",
    ),
    "two changed": (
        lambda b: b.call_extern("put", b.outputs[0].part(0, 5).written(), b.outputs[0].part(4, 4).updated()),
        "0 to 5 of `y` and elements 4 to 8",
    ),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_a_changed_part_shares_no_element_with_another_argument(name: str) -> None:
    fill, elements = OVERLAPS[name]
    assert message_of(behind(parts((0, 8)), fill)) == (
        f"function `f`, call of `put`: accesses elements {elements} of `y`, not provably disjoint, and changes them"
    )


def test_a_copy_inside_a_buffer_is_between_disjoint_parts() -> None:
    builder = builder_of(text_of("8"))
    write(builder, 0, 4)
    builder.copy(builder.outputs[0].part(0, 4), builder.outputs[0].part(4, 4))
    builder.finish()
    assert message_of(behind(parts((0, 4)), lambda b: b.copy(b.outputs[0].part(0, 4), b.outputs[0].part(3, 4)))) == (
        "function `f`, copy to `y`: accesses elements 0 to 4 of `y` and elements 3 to 7 of `y`, "
        "not provably disjoint, and changes them"
    )


def test_a_part_without_elements_overlaps_nothing() -> None:
    builder = builder_of(text_of("8"))
    write(builder, 0, 8)
    builder.call_extern("put", builder.outputs[0].part(3, 0), builder.outputs[0].written())
    builder.finish()


def test_parts_read_twice_may_overlap() -> None:
    builder = builder_of(text_of("8"))
    builder.call_extern("put", builder.inputs[0], builder.inputs[0].part(2), builder.outputs[0].written())
    builder.finish()


COPIES: dict[str, tuple[Fill, str]] = {
    "dtype": (
        lambda b: b.copy(b.constant([0.0] * 8), b.outputs[0]),
        "copies between different dtypes; got float64 and float32",
    ),
    "size": (
        lambda b: b.copy(b.inputs[0].part(1), b.outputs[0]),
        "copies between different sizes; got 7 and 8 elements",
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_keep_dtype_and_size(name: str) -> None:
    fill, text = COPIES[name]
    assert message_of(fill) == f"function `f`, copy to `y`: {text}"


def test_every_statement_writes_a_buffer() -> None:
    assert message_of(behind(parts((0, 8)), lambda b: b.call_extern("get", b.inputs[0]))) == (
        "function `f`, statement 1, call of `get`: writes no buffer"
    )

    def empty(builder: LoweringBuilder) -> None:
        write(builder, 0, 8)
        with builder.loop(3):
            pass

    assert message_of(empty) == "function `f`, statement 1: writes no buffer"


UNKNOWN: dict[str, tuple[Fill, str]] = {
    "argument": (
        lambda b: b.call_extern("put", b.outputs[0].written(), symbol("k")),
        ", call of `put`: an argument has an unknown symbol; got k, expected n",
    ),
    "offset": (
        lambda b: write(b, symbol("k"), 0),
        ", call of `put`: a part of `y` has an unknown symbol; got k, expected n",
    ),
    "extent": (
        by_loop(symbol("k"), lambda _: 0, N),
        ", loop over `index_0`: the number of rounds has an unknown symbol; got k, expected n",
    ),
    "buffer": (
        behind(lambda b: b.allocate(tensor(("k",)), "t"), parts((0, N))),
        ": the size of buffer `t` has an unknown symbol; got k, expected n",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_symbols_are_sizes_of_the_parameters(name: str) -> None:
    fill, text = UNKNOWN[name]
    assert message_of(fill, '"n"') == f"function `f`{text}"


def test_an_index_is_known_inside_the_loop_only() -> None:
    def fill(builder: LoweringBuilder) -> None:
        with builder.loop(8) as index:
            write(builder, index, 1)
        builder.call_extern("put", builder.outputs[0].updated(), index)

    assert message_of(fill, "8") == (
        "function `f`, call of `put`: an argument has an unknown symbol; got index_0, expected no symbol"
    )


def test_a_buffer_of_another_function_is_refused() -> None:
    foreign = builder_of(text_of("8")).outputs[0]
    assert message_of(lambda b: b.call_extern("put", b.inputs[0], foreign.written())) == (
        "function `f`, call of `put`: writes `y`, a buffer of another function"
    )
