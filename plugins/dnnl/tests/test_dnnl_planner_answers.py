"""The planner's answers to lowerings: readers of a value, places of values, and known facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import byoc_dnnl.planner
import numpy as np
import pytest
from byoc_core.errors import ArtifactError
from byoc_core.runtime.graph.document import GraphConstant, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.runtime.threads import num_threads
from byoc_dnnl.calls import calls_of
from byoc_dnnl.capi import Argument, DataType, dims_array
from byoc_dnnl.derived_constants import BlockSums, Reordered
from byoc_dnnl.engine import open_engine
from byoc_dnnl.handles import Engine, MemoryDesc
from byoc_dnnl.plan import Buffer, Check, Kernel, Kind, Location, Step
from byoc_dnnl.planner import Planner
from byoc_dnnl.precision import Precision, lacks_instructions
from byoc_dnnl.ranges_constants import ConstantRanges
from byoc_dnnl.unstored_values import Flattened
from byoc_dnnl.value_facts import CHECK_LIMITS
from hypothesis import given
from hypothesis import strategies as st

SIZES = (4, 6)
NCHW16C = 78
Node = tuple[str, tuple[int, ...]]


def _graph(
    nodes: Sequence[Node],
    outputs: Sequence[int],
    sizes: tuple[int, ...] = SIZES,
    constants: Sequence[GraphConstant] = (),
    dtype: str = "float32",
) -> GraphFunction:
    """Return a function of a single input with id 0; all values but constants have the same type."""
    tensor = GraphTensor(dtype, sizes)
    return GraphFunction(
        "f",
        (TensorSpec("x", dtype, sizes),),
        tuple(constants),
        tuple(GraphNode(op, inputs, (tensor,)) for op, inputs in nodes),
        tuple((f"y{number}", id_) for number, id_ in enumerate(outputs)),
    )


def _planner(
    function: GraphFunction, arrays: Mapping[str, NDArray] | None = None, precision: Precision = "float32"
) -> Planner:
    return Planner(open_engine(), function, ConstantRanges(arrays or {}), strict=True, precision=precision)


@pytest.fixture(autouse=True)
def engine() -> Iterator[Engine]:
    with open_engine().threads(num_threads()):
        yield open_engine()


@given(data=st.data())
def test_who_reads_a_value_is_known(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    pairs = [data.draw(st.tuples(st.integers(0, i), st.integers(0, i))) for i in range(count)]
    outputs = data.draw(st.lists(st.integers(0, count), min_size=1, max_size=3))
    function = _graph([("add", pair) for pair in pairs], outputs)
    planner, calls = _planner(function), calls_of(function)
    for id_ in range(count + 1):
        readers = [call for call in calls if id_ in call.inputs]
        is_result = id_ in outputs
        assert planner.graph.is_result(id_) is is_result
        assert planner.graph.is_read(id_) is (bool(readers) or is_result)
        assert planner.graph.is_read_once(id_) is (len(readers) == 1 and not is_result)
        if id_:
            follows = not is_result and len(readers) == 1 and readers[0].inputs.count(id_) == 1
            assert planner.graph.follower(calls[id_ - 1]) == (readers[0] if follows else None)


def test_a_call_that_reads_memory_last_may_write_there() -> None:
    function = _graph(
        [("nn.relu", (0,)), ("tanh", (1,)), ("negative", (1,)), ("exp", (3,)), ("sqrt", (0,)), ("abs", (4,))], [2, 6]
    )
    planner, (relu, tanh, negative, exp, *_) = _planner(function), calls_of(function)
    memory = planner.allocate_temporary("memory", planner.row_major(SIZES))
    assert (memory.buffer.name, memory.buffer.kind, memory.buffer.nbytes) == ("memory", Kind.ARENA, 96)
    assert not planner.can_overwrite(relu, 0)  # the caller's
    planner.set_location(1, memory)
    assert not planner.can_overwrite(tanh, 1)  # `negative` reads it too
    planner.set_location(3, memory)
    assert not planner.can_overwrite(tanh, 1)  # `exp` reads the same memory
    assert not planner.can_overwrite(exp, 3)
    planner.set_location(5, memory)  # nothing reads the root
    planner.set_location(4, planner.allocate_temporary("other", planner.row_major(SIZES)))
    assert planner.can_overwrite(tanh, 1)
    assert not planner.can_overwrite(negative, 1)
    planner.set_location(2, memory)
    assert not planner.can_overwrite(tanh, 1)  # the memory holds a result
    assert not planner.can_overwrite(relu, 1)


def test_a_call_that_reads_memory_twice_does_not_write_there() -> None:
    function = _graph([("nn.relu", (0,)), ("add", (1, 1))], [2])
    planner, (_, add) = _planner(function), calls_of(function)
    planner.set_location(1, planner.allocate_temporary("memory", planner.row_major(SIZES)))
    assert not planner.can_overwrite(add, 1)


def test_fused_calls_read_no_more_and_readers_of_flattened_rows_read_the_memory() -> None:
    function = _graph([("nn.relu", (0,)), ("tanh", (1,)), ("reshape", (1,)), ("exp", (3,))], [2, 4])
    planner, (_, tanh, reshape, exp) = _planner(function), calls_of(function)
    memory = planner.allocate_temporary("memory", planner.row_major(SIZES))
    planner.set_location(1, memory)
    known = Flattened(memory, SIZES, (1, 0))
    placed: list[int] = []

    def place() -> None:
        placed.append(3)
        planner.set_location(3, memory)

    planner.defer(3, known, place)
    assert planner.is_available(3)
    assert (planner.flattened(3), planner.flattened(1), planner.quantised(3)) == (known, None, None)
    assert not planner.can_overwrite(tanh, 1)  # `exp` reads the rows where they lie
    planner.mark_fused([exp])
    assert planner.can_overwrite(tanh, 1)
    assert placed == []
    assert [planner.stored_location(3), planner.stored_location(3)] == [memory, memory]
    assert placed == [3]
    assert not planner.can_overwrite(reshape, 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_channels_last_is_another_order_of_the_same_axes(dtype: str) -> None:
    planner = _planner(_graph([], [0]))
    for sizes, tag in (((2, 3), "ab"), ((2, 3, 4), "acb"), ((2, 3, 4, 5), "acdb"), ((2, 3, 4, 5, 6), "acdeb")):
        desc = planner.channels_last(sizes, dtype)
        assert (str(desc).partition(":")[0], desc.sizes, desc.dtype) == (tag, sizes, dtype)
        assert planner.row_major(sizes, dtype).dtype == planner.any_layout(sizes, dtype).dtype == dtype
    assert (
        planner.channels_last((2, 3)).dtype
        == planner.row_major((2, 3)).dtype
        == planner.any_layout((2,)).dtype
        == "float32"
    )


NARROW: list[tuple[Sequence[Node], str]] = [
    ([("nn.dense", (1,))], "bfloat16"),
    ([("nn.softmax", (1,))], "float32"),
    ([("nn.softmax", (1,)), ("nn.dense", (1,))], "bfloat16"),
    ([("nn.relu", (1,)), ("nn.dense", (2,))], "bfloat16"),
    ([("nn.relu", (1,)), ("nn.softmax", (2,))], "float32"),
    ([("nn.relu", (1,)), ("tanh", (2,)), ("mean", (3,))], "bfloat16"),
    ([("nn.softmax", (1,)), ("nn.dense", (2,))], "float32"),
    ([], "float32"),
]


@pytest.mark.parametrize(("nodes", "narrow"), NARROW)
def test_a_result_is_stored_narrow_where_that_is_read(
    nodes: Sequence[Node], narrow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byoc_dnnl.planner, "lacks_instructions", lambda *_: False)
    function = _graph([("nn.dense", (0,)), *nodes], [len(nodes) + 1])
    call = calls_of(function)[0]
    assert _planner(function, precision="bfloat16").result_dtype(call) == narrow
    assert _planner(function).result_dtype(call) == "float32"
    assert _planner(function, precision="bfloat16").factor_dtypes(call) == ("bfloat16", "float32")
    assert _planner(function).factor_dtypes(call) == ("float32",)
    for dtype in ("bfloat16", "int8"):
        other = _graph([("nn.dense", (0,)), *nodes], [len(nodes) + 1], dtype=dtype)
        for precision in ("float32", "bfloat16"):
            planner = _planner(other, precision=precision)
            assert planner.result_dtype(calls_of(other)[0]) == dtype
            assert planner.factor_dtypes(calls_of(other)[0]) == (dtype,)


def test_precision_that_the_machine_lacks_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byoc_dnnl.planner, "lacks_instructions", lambda *_: True)
    function = _graph([("nn.dense", (0,)), ("nn.dense", (1,))], [2])
    planner = _planner(function, precision="bfloat16")
    assert planner.result_dtype(calls_of(function)[0]) == "float32"
    assert planner.factor_dtypes(calls_of(function)[0]) == ("float32",)


def test_elements_are_known_of_constants_only() -> None:
    given, made = np.ones(SIZES, np.float32), np.zeros(SIZES, np.float32)
    constants = [GraphConstant(digest, GraphTensor("float32", SIZES)) for digest in ("given", "elsewhere")]
    function = _graph([("nn.relu", (0,)), ("tanh", (3,))], [4], constants=constants)
    planner = _planner(function, {"given": given})
    assert planner.array(1) is given
    assert [planner.array(id_) for id_ in (0, 2, 3)] == [None] * 3
    assert [planner.is_constant(id_) for id_ in (0, 1, 2)] == [False, True, True]
    planner.set_constant(3, "made", lambda: made)
    assert planner.array(3) is made
    assert planner.array(1) is given
    place = planner.stored_location(3)
    buffer = place.buffer
    assert (buffer.kind, buffer.name, buffer.nbytes, buffer.digest) == (Kind.CONSTANT, "%3", 96, "made")
    assert place.desc == planner.row_major(SIZES)
    assert planner.add_constant("half", "other", lambda: made, place.desc).buffer.name == "half"


def _in_blocks(engine: Engine, sizes: tuple[int, ...]) -> MemoryDesc:
    four = (*sizes, 1, 1, 1)[:4]
    create = "dnnl_memory_desc_create_with_tag"
    found = MemoryDesc(engine.api, create, 4, dims_array(four), DataType.float32, NCHW16C).reshaped(sizes)
    assert found is not None
    assert found.is_blocked()
    return found


@pytest.mark.parametrize("sizes", [(3, 32), (3, 32, 4), (3, 32, 4, 5)])
def test_a_value_is_offered_as_it_lies_then_as_more_primitives_take_it(sizes: tuple[int, ...], engine: Engine) -> None:
    function = _graph([("nn.relu", (0,))], [1], sizes)
    rows, last = (getattr(_planner(function), name)(sizes) for name in ("row_major", "channels_last"))
    cases = {
        "rows": (rows, [rows]),
        "blocks": (_in_blocks(engine, sizes), [*([last] if len(sizes) > 2 else []), rows]),
        **({"last": (last, [last, rows])} if len(sizes) > 2 else {}),
    }
    for name, (desc, others) in cases.items():
        planner = _planner(function)
        place = planner.allocate_temporary("memory", desc)
        planner.set_location(1, place)
        first, *more = planner.candidate_locations(1)
        assert first is place
        assert [way.desc for way in more] == [other for other in others if other != desc], name
        assert list(planner.candidate_locations(1)) == [first, *more]  # copies are made once
        assert all(planner.can_overwrite(call, 1) is False for call in calls_of(function))


def test_a_value_that_is_stored_narrow_is_offered_in_its_own_dtype_too(engine: Engine) -> None:
    if lacks_instructions(engine.isa, "bfloat16"):
        pytest.skip("oneDNN has no instructions for bfloat16 here")
    planner = _planner(_graph([("nn.relu", (0,))], [1]), precision="bfloat16")
    place = planner.allocate_temporary("memory", planner.row_major(SIZES, "bfloat16"))
    planner.set_location(1, place)
    first, second = planner.candidate_locations(1)
    assert first is planner.location_as(1, "bfloat16") is place
    assert second is planner.location(1) is planner.row_major_location(1)
    assert second.desc == planner.row_major(SIZES)
    assert planner.row_major_location(1, "bfloat16") is place


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_made_of_a_constant_has_its_dtype_and_is_made_once(dtype: str) -> None:
    constant = GraphConstant("digest", GraphTensor(dtype, (2, 3, 4)))
    planner = _planner(_graph([], [0], constants=[constant]))
    given = planner.stored_location(1).buffer
    for derivation in (Reordered((2, 3, 4), (2, 0, 1)), BlockSums((2, 3, 4), ((0, 1), (2,), (0,), (1,)))):
        place = planner.derived_constant(1, derivation)
        assert place.desc == planner.row_major(derivation.result_sizes, dtype)
        found = place.buffer
        assert (found.kind, found.name, found.digest) == (Kind.CONSTANT, given.name, "digest")
        assert (found.derivation, found.nbytes) == (derivation, place.desc.nbytes)
        assert planner.derived_constant(1, derivation) is place
    for sizes in ((2, 3), (2, 3, 4, 2), (3, 3, 3)):
        with pytest.raises(ArtifactError) as caught:
            planner.derived_constant(1, Reordered(sizes, tuple(range(len(sizes)))))
        needed = int(np.prod(sizes)) * given.nbytes // 24
        assert str(caught.value) == f"constant %1: has another size; got {given.nbytes}, expected {needed} bytes"


def test_values_are_checked_for_finite_numbers_where_that_can_be() -> None:
    constants = [GraphConstant("infinite", GraphTensor("float32", SIZES))]
    function = _graph([], [0], constants=constants)
    planner = _planner(function, {"infinite": np.full(SIZES, np.inf, np.float32)})
    assert planner.check_finite([1]) is False
    assert planner.check_finite([0, 1]) is False
    assert planner.check_finite([0]) is True
    assert planner.check_finite([0]) is True  # it is known by now
    plan = planner.plan()
    assert not isinstance(plan, str)
    check, copy = plan.steps
    assert check == Check("finite numbers", planner.stored_location(0), CHECK_LIMITS[0])
    assert isinstance(copy, Step)
    assert copy.title == "reorder"


def test_an_operand_of_fewer_bytes_than_a_primitive_reads_is_refused() -> None:
    planner = _planner(_graph([], [0]))
    rows, last = planner.row_major((2, 3, 4)), planner.channels_last((2, 3, 4))
    reorder, target = planner.factory.reorder(rows, last), planner.allocate_temporary("target", last)
    for nbytes in (95, 96):
        arguments = {Argument.SRC: Location(Buffer(Kind.ARENA, "source", nbytes), rows), Argument.DST: target}
        if nbytes == 96:
            planner.add_step("move", reorder, arguments)
            continue
        with pytest.raises(ArtifactError) as caught:
            planner.add_step("move", reorder, arguments)
        assert str(caught.value) == "`move`, operand source: is too small; got 95, expected 96 bytes"
    planner.add_kernel(Kernel("erf", target, target))
    planner.add_kernel(Kernel("log", target, target, 4))
    plan = planner.plan()
    assert not isinstance(plan, str)
    step, each, rows_of_four, _ = plan.steps
    assert isinstance(step, Step)
    assert (step.title, dict(step.arguments)) == ("move", {int(key): place for key, place in arguments.items()})
    assert each == Kernel("erf", target, target, 0)
    assert rows_of_four == Kernel("log", target, target, 4)


def test_tensors_that_no_primitive_takes_are_named() -> None:
    for tensor in (GraphTensor("int64", (2,)), GraphTensor("float32", (1,) * 13)):
        assert isinstance(tensor.shape, tuple)
        function = GraphFunction("f", (TensorSpec("x", tensor.dtype, tensor.shape),), (), (), (("y", 0),))
        planner = _planner(function)
        assert not planner.is_available(0)
        assert planner.plan() == f"oneDNN does not support tensors like {tensor}"
    negative = _graph([("no.such", (0,))], [1])
    found = _planner(negative).plan()
    assert isinstance(found, str)
    assert found.startswith("`no.such`: ")
