"""Views at the borders of regions: IR text in, IR text out."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.dims import evaluate, parse_dim
from byoc_core.ir import IRModule, verify
from byoc_core.partitioning import MergeCompositeFunctions, PeelViews

from core.tests.conftest import FakeBackend


def peeled(text: str, fake_backend: type[FakeBackend], *, sideways: bool = False, **options: Any) -> IRModule:
    """Make regions of the claims in a text (``aone`` takes no strides, ``btwo`` and the host do), and peel regions."""
    backends = [fake_backend("aone"), fake_backend("btwo", strided=True)]
    carved = MergeCompositeFunctions(sideways)(R.parse(text))
    found = PeelViews(backends, **options)(carved)
    verify(found)
    assert PeelViews(backends, **options)(found) is found
    return found


def sketch(module: IRModule) -> list[str]:
    """Return a line for each binding: values without types, regions as ``region: ...`` in front of their calls."""
    lines = []
    for name, function in module.functions.items():
        params = " ".join(param.name for param in function.params)
        results = " ".join(getattr(result, "name", "const") for result in function.results)
        lines.append(f"{name}({params}) -> {results}")
        for binding in function.bindings:
            operands = " ".join(getattr(operand, "name", "const") for operand in binding.operands)
            defined = " ".join(result.name for result in binding.results)
            lines.append(f"  {defined} = {binding.attrs.get('callee', binding.op.name)}({operands})")
    return lines


def check(text: str, want: str, fake_backend: type[FakeBackend], *, sideways: bool = False) -> None:
    assert sketch(peeled(text, fake_backend, sideways=sideways)) == want.strip("\n").splitlines()


def test_reshapes_leave_in_front_and_behind(fake_backend: type[FakeBackend]) -> None:
    check(
        """
def main(x: R.Tensor((2, 8)), w: R.Tensor((4, 4))):
    a = R.reshape(x, shape=(4, 4), codegen="aone")
    b = R.expand_dims(a, axis=(0,), codegen="aone")
    c = R.squeeze(b, axis=(0,), codegen="aone")
    d = R.matmul(c, w, codegen="aone")
    e = R.reshape(d, shape=(16,), codegen="aone")
    f = R.expand_dims(e, axis=(0,), codegen="aone")
    return f
""",
        """
aone_main_0(c w) -> d
  d = matmul(c w)
main(x w) -> f
  a = reshape(x)
  b = expand_dims(a)
  c = squeeze(b)
  d = aone_main_0(c w)
  e = reshape(d)
  f = expand_dims(e)
""",
        fake_backend,
    )


def test_a_value_that_something_else_reads_stays(fake_backend: type[FakeBackend]) -> None:
    """``a`` is itself read outside, and ``c`` is read inside: leaving would add an input, or a copy of the op."""
    check(
        """
def main(x: R.Tensor((2, 8))):
    a = R.reshape(x, shape=(16,), codegen="aone")
    b = R.nn.relu(x, codegen="aone")
    c = R.reshape(b, shape=(16,), codegen="aone")
    d = R.add(a, c, codegen="aone")
    return c, d
""",
        """
aone_main_0(x) -> c d
  a = reshape(x)
  b = nn.relu(x)
  c = reshape(b)
  d = add(a c)
main(x) -> c d
  c d = aone_main_0(x)
""",
        fake_backend,
    )


def test_what_reads_a_parameter_and_makes_a_result_leaves_at_no_cost(fake_backend: type[FakeBackend]) -> None:
    check(
        """
def main(x: R.Tensor((2, 8))):
    a = R.reshape(x, shape=(16,), codegen="aone")
    b = R.nn.relu(x, codegen="aone")
    c = R.reshape(b, shape=(16,), codegen="aone")
    return a, b, c
""",
        """
aone_main_0(x) -> b
  b = nn.relu(x)
main(x) -> a b c
  b = aone_main_0(x)
  a = reshape(x)
  c = reshape(b)
""",
        fake_backend,
        sideways=True,
    )


def test_splits_of_pieces_and_joints_of_pieces(fake_backend: type[FakeBackend]) -> None:
    check(
        """
def main(x: R.Tensor((1, 6, 5))):
    a, b, c = R.split(x, sections=(2, 2, 2), axis=1, codegen="aone")
    d = R.nn.relu(b, codegen="aone")
    e = R.exp(c, codegen="aone")
    f = R.concat(d, e, R.const([[[1.0, 2.0, 3.0, 4.0, 5.0]]], "float32"), d, axis=1, codegen="aone")
    return f
""",
        """
aone_main_0(b c) -> d e
  d = nn.relu(b)
  e = exp(c)
main(x) -> f
  a b c = split(x)
  d e = aone_main_0(b c)
  f = concat(d e const d)
""",
        fake_backend,
    )


APART = """
def main(x: R.Tensor((3, 6))):
    a, b = R.split(x, sections=(2, 4), axis=1, codegen="NAME")
    c = R.nn.relu(a, codegen="NAME")
    d = R.exp(b, codegen="NAME")
    e = R.concat(c, d, axis=1, codegen="NAME")
    return e
"""


def test_parts_that_lie_apart_stay_with_who_wants_them_in_one_piece(fake_backend: type[FakeBackend]) -> None:
    check(
        APART.replace("NAME", "aone"),
        """
aone_main_0(x) -> e
  a b = split(x)
  c = nn.relu(a)
  d = exp(b)
  e = concat(c d)
main(x) -> e
  e = aone_main_0(x)
""",
        fake_backend,
    )


def test_parts_that_lie_apart_leave_who_takes_strides(fake_backend: type[FakeBackend]) -> None:
    check(
        APART.replace("NAME", "btwo"),
        """
btwo_main_0(a b) -> c d
  c = nn.relu(a)
  d = exp(b)
main(x) -> e
  a b = split(x)
  c d = btwo_main_0(a b)
  e = concat(c d)
""",
        fake_backend,
    )


def test_a_joint_of_inputs_that_is_a_result_leaves(fake_backend: type[FakeBackend]) -> None:
    """As in a DenseNet: the next layer reads the joint too. Then only the reshape reads ``x``, and leaves as well."""
    check(
        """
def main(x: R.Tensor((3, 2)), y: R.Tensor((3, 4))):
    c = R.concat(x, y, axis=1, codegen="aone")
    d = R.exp(c, codegen="aone")
    e = R.reshape(x, shape=(6,), codegen="aone")
    f = R.tanh(e, codegen="aone")
    g = R.concat(f, f, codegen="aone")
    h = R.exp(g, codegen="aone")
    return c, d, f, h
""",
        """
aone_main_0(c e) -> d f h
  d = exp(c)
  f = tanh(e)
  g = concat(f f)
  h = exp(g)
main(x y) -> c d f h
  c = concat(x y)
  e = reshape(x)
  d f h = aone_main_0(c e)
""",
        fake_backend,
        sideways=True,
    )


def test_a_joint_that_only_the_region_reads_stays(fake_backend: type[FakeBackend]) -> None:
    text = """
def main(x: R.Tensor((1, 2)), y: R.Tensor((1, 4))):
    c = R.concat(x, y, axis=1, codegen="btwo")
    d = R.exp(c, codegen="btwo")
    return d
"""
    assert sketch(peeled(text, fake_backend))[0] == "btwo_main_0(x y) -> d"


def test_a_split_at_the_end_leaves_where_each_part_is_a_piece_that_is_read(fake_backend: type[FakeBackend]) -> None:
    check(
        """
def main(x: R.Tensor((6, 5)), y: R.Tensor((3, 6)), z: R.Tensor((6, 5))):
    a = R.nn.relu(x, codegen="aone")
    b, c = R.split(a, sections=(2, 4), codegen="aone")
    d = R.nn.relu(y, codegen="btwo")
    e, f = R.split(d, sections=(2, 4), axis=1, codegen="btwo")
    g = R.exp(z, codegen="aone")
    h, i = R.split(g, sections=(2, 4), codegen="aone")
    return b, c, e, f, h
""",
        """
aone_main_0(x) -> a
  a = nn.relu(x)
btwo_main_0(y) -> e f
  d = nn.relu(y)
  e f = split(d)
aone_main_1(z) -> h
  g = exp(z)
  h i = split(g)
main(x y z) -> b c e f h
  a = aone_main_0(x)
  b c = split(a)
  e f = btwo_main_0(y)
  h = aone_main_1(z)
""",
        fake_backend,
    )


@pytest.mark.parametrize(
    ("shape", "slice_", "leaves"),
    [
        ("(6, 5)", "axes=(0,), begin=(1,), end=(4,), strides=(1,)", True),
        ("(6, 5)", "axes=(0,), begin=(-1,), end=(9,), strides=(7,)", True),
        ("(6, 5)", "axes=(0,), begin=(1,), end=(6,), strides=(2,)", False),
        ("(6, 5)", "axes=(1,), begin=(1,), end=(4,), strides=(1,)", False),
        ("(1, 5)", "axes=(1,), begin=(1,), end=(4,), strides=(1,)", True),
        ("(6, 5)", "axes=(0, 1), begin=(2, 1), end=(3, 4), strides=(1, 1)", True),
        ("(6, 5)", "axes=(0, 1), begin=(0, 0), end=(6, 5), strides=(1, 1)", True),
        ("(6, 5)", "axes=(0,), begin=(5,), end=(2,), strides=(-1,)", False),
        ('("n", 5)', "axes=(1,), begin=(1,), end=(4,), strides=(1,)", False),
        ('("n", 5)', "axes=(0,), begin=(1,), end=(4,), strides=(1,)", False),
    ],
)
def test_slices(shape: str, slice_: str, leaves: bool, fake_backend: type[FakeBackend]) -> None:
    text = f"""
def main(x: R.Tensor({shape})):
    a = R.strided_slice(x, {slice_}, codegen="aone")
    b = R.exp(a, codegen="aone")
    return b
"""
    assert ("  a = strided_slice(x)" in sketch(peeled(text, fake_backend))[2:]) == leaves


def test_a_slice_with_steps_leaves_who_takes_strides_if_it_goes_forwards(fake_backend: type[FakeBackend]) -> None:
    text = """
def main(x: R.Tensor((6, 5))):
    a = R.strided_slice(x, axes=(0,), begin=(BEGIN,), end=(END,), strides=(STEP,), codegen="btwo")
    b = R.exp(a, codegen="btwo")
    return b
"""
    forwards = text.replace("BEGIN", "1").replace("END", "6").replace("STEP", "2")
    assert sketch(peeled(forwards, fake_backend))[0] == "btwo_main_0(a) -> b"
    backwards = text.replace("BEGIN", "5").replace("END", "0").replace("STEP", "-1")
    assert sketch(peeled(backwards, fake_backend))[0] == "btwo_main_0(x) -> b"


@pytest.mark.parametrize(
    ("backend", "shape", "leaves"),
    [("aone", (2, 3, 4), False), ("btwo", (2, 3, 4), True), ("aone", (3, 1, 4), True)],
)
def test_a_permutation_leaves_in_front_where_it_makes_no_copy(
    backend: str, shape: tuple[int, ...], leaves: bool, fake_backend: type[FakeBackend]
) -> None:
    text = f"""
def main(x: R.Tensor({shape})):
    a = R.permute_dims(x, axes=(1, 0, 2), codegen="{backend}")
    b = R.exp(a, codegen="{backend}")
    c = R.permute_dims(b, axes=(2, 1, 0), codegen="{backend}")
    return c
"""
    found = sketch(peeled(text, fake_backend))
    assert found[0] == f"{backend}_main_0({'a' if leaves else 'x'}) -> c"


def test_a_region_of_the_host_that_only_looks_is_opened(fake_backend: type[FakeBackend]) -> None:
    """The region of ``tanh`` stays: only the reshape in front leaves."""
    check(
        """
def main(x: R.Tensor((2, 3, 4)), y: R.Tensor((4, 3))):
    a = R.permute_dims(x, axes=(2, 1, 0), codegen="host")
    b, c = R.split(a, sections=(1, 1), axis=2, codegen="host")
    d = R.concat(b, c, axis=1, codegen="host")
    e = R.nn.relu(d, codegen="aone")
    f = R.permute_dims(y, axes=(1, 0), codegen="host")
    g = R.tanh(f, codegen="host")
    h = R.permute_dims(g, axes=(1, 0), codegen="host")
    return e, h
""",
        """
aone_main_0(d) -> e
  e = nn.relu(d)
host_main_1(f) -> h
  g = tanh(f)
  h = permute_dims(g)
main(x y) -> e h
  a = permute_dims(x)
  b c = split(a)
  d = concat(b c)
  e = aone_main_0(d)
  f = permute_dims(y)
  h = host_main_1(f)
""",
        fake_backend,
    )


def test_a_region_that_becomes_empty_disappears(fake_backend: type[FakeBackend]) -> None:
    check(
        """
def main(x: R.Tensor((2, 8))):
    a = R.reshape(x, shape=(16,), codegen="aone")
    b, c = R.split(a, sections=(4, 12), codegen="aone")
    return c, b
""",
        """
main(x) -> c b
  a = reshape(x)
  b c = split(a)
""",
        fake_backend,
    )


def test_sizes_of_a_moved_parameter_come_from_the_parameter(fake_backend: type[FakeBackend]) -> None:
    """From ``m*n`` follows neither; in the second function ``n`` follows from ``4*n``."""
    check(
        """
def main(x: R.Tensor(("m", "n"))):
    a = R.reshape(x, shape=("m*n",), codegen="aone")
    b = R.exp(a, codegen="aone")
    return b

def side(x: R.Tensor(("n", 4))):
    a = R.reshape(x, shape=("4*n",), codegen="aone")
    b = R.exp(a, codegen="aone")
    return b
""",
        """
aone_main_0(a x) -> b
  b = exp(a)
aone_side_0(a) -> b
  b = exp(a)
main(x) -> b
  a = reshape(x)
  b = aone_main_0(a x)
side(x) -> b
  a = reshape(x)
  b = aone_side_0(a)
""",
        fake_backend,
    )


def test_symbolic_parts_leave_where_their_sizes_provably_agree(fake_backend: type[FakeBackend]) -> None:
    text = """
def main(x: R.Tensor(("m+n", 4)), y: R.Tensor(("m",)), z: R.Tensor(("n",))):
    a, b = R.split(x, sections=("m", "SECOND"), codegen="aone")
    c = R.exp(a, codegen="aone")
    d = R.exp(b, codegen="aone")
    return c, d
"""
    assert sketch(peeled(text.replace("SECOND", "n"), fake_backend))[0] == "aone_main_0(a b) -> c d"
    other = text.replace('"m+n"', '"k"').replace("SECOND", "n")
    assert sketch(peeled(other, fake_backend))[0].startswith("aone_main_0(x")


@pytest.mark.parametrize("size", ["2*n-3", "n-m", "n*m-3", "n//2-1"])
def test_a_joint_whose_parts_have_no_certain_place_stays(size: str) -> None:
    """Lowering could not prove the places of the parts, so the caller would have no code for the joint."""
    text = f"""
def main(w: R.Tensor(("n", "m")), x: R.Tensor(("{size}", 4)), y: R.Tensor(("n", 4))):
    a = R.exp(x)
    b = R.exp(y)
    c = R.concat(a, b, a)
    return c, w
"""
    module = R.parse(text)
    sizes = {"n": 7, "m": 3}
    rows = evaluate(parse_dim(size), sizes)
    inputs = [np.full(shape, 1.5, np.float32) for shape in ((7, 3), (rows, 4), (7, 4))]
    found = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"](*inputs)
    parts = inputs[1], inputs[2], inputs[1]
    np.testing.assert_array_max_ulp(found[0], np.exp(np.concatenate(parts, dtype=np.float64)).astype(np.float32))


def test_sizes_that_the_data_tells_are_left_alone(fake_backend: type[FakeBackend]) -> None:
    check(
        """
def main(x: R.Tensor((4,), "int64")):
    p = R.nonzero(x, out_types=[R.Tensor((1, "k"), "int64")], codegen="btwo")
    a = R.reshape(p, shape=("k",), codegen="btwo")
    b = R.squeeze(p, axis=(0,), codegen="host")
    return a, b
""",
        """
btwo_main_0(x) -> p
  p = nonzero(x)
btwo_main_1(p) -> a
  a = reshape(p)
host_main_0(p) -> b
  b = squeeze(p)
main(x) -> a b
  p = btwo_main_0(x)
  a = btwo_main_1(p)
  b = host_main_0(p)
""",
        fake_backend,
    )


def test_bodies_of_control_flow(fake_backend: type[FakeBackend]) -> None:
    module = peeled(
        """
def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    def yes(a: R.Tensor((4,))):
        b = R.reshape(a, shape=(2, 2), codegen="host")
        c = R.exp(b, codegen="aone")
        d = R.reshape(c, shape=(4,), codegen="aone")
        return d
    def no(e: R.Tensor((4,))):
        f = R.squeeze(e, axis=(), codegen="host")
        return f
    y = R.if_(p, x, regions=[yes, no])
    return y
""",
        fake_backend,
    )
    bodies = [sketch(IRModule({body.name: body})) for body in module["main"].bindings[0].regions]
    assert bodies == [
        ["yes(a) -> d", "  b = reshape(a)", "  c = aone_main_0(b)", "  d = reshape(c)"],
        ["no(e) -> f", "  f = squeeze(e)"],
    ]
    assert list(module.functions) == ["aone_main_0", "main"]


def test_what_partition_did_not_make_is_not_changed(fake_backend: type[FakeBackend]) -> None:
    """By hand: without ``source``. Called twice; and with other sizes."""
    text = """
def hand(x: R.Tensor((2, 8))):
    R.func_attr({"Codegen": "aone", "global_symbol": "hand"})
    a = R.reshape(x, shape=(16,))
    b = R.exp(a)
    return b

def twice(x: R.Tensor((2, 8))):
    R.func_attr({"Codegen": "aone", "global_symbol": "twice", "source": "main"})
    a = R.reshape(x, shape=(16,))
    b = R.exp(a)
    return b

def sized(x: R.Tensor(("n", 8))):
    R.func_attr({"Codegen": "aone", "global_symbol": "sized", "source": "main"})
    a = R.reshape(x, shape=("8*n",))
    b = R.exp(a)
    return b

def main(x: R.Tensor((2, 8))):
    a = hand(x)
    b = twice(x)
    c = twice(x)
    d = sized(x)
    return a, b, c, d
"""
    module = R.parse(text)
    assert PeelViews([fake_backend("aone")])(module) is module


def test_composites_are_taken_as_a_whole(fake_backend: type[FakeBackend]) -> None:
    text = """
def main(x: R.Tensor((2, 8))):
    def body(a: R.Tensor((2, 8))):
        b = R.reshape(a, shape=(16,))
        return b
    c = R.composite("aone.flat", x, regions=[body], codegen="aone")
    return c
"""
    module = MergeCompositeFunctions()(R.parse(text))
    assert PeelViews([fake_backend("aone")])(module) is module


def test_ops_that_somebody_keeps(fake_backend: type[FakeBackend]) -> None:
    text = """
def main(x: R.Tensor((2, 8))):
    a = R.reshape(x, shape=(16,), codegen="aone")
    b = R.exp(a, codegen="aone")
    c = R.reshape(b, shape=(4, 4), codegen="aone")
    return c
"""
    found = sketch(peeled(text, fake_backend, keeps=lambda function, name: (function, name) == ("main", "a")))
    assert found[0] == "aone_main_0(x) -> b"


def test_dead_ops_are_left_to_who_removes_them(fake_backend: type[FakeBackend]) -> None:
    check(
        """
def main(x: R.Tensor((4,))):
    a, b = R.split(x, sections=(2, 2), codegen="aone")
    c = R.exp(b, codegen="aone")
    return a, b
""",
        """
aone_main_0(x) -> a b
  a b = split(x)
  c = exp(b)
main(x) -> a b
  a b = aone_main_0(x)
""",
        fake_backend,
    )
