"""Regions in odd places: bodies in bodies, values read oddly or never, sizes, effects behind calls, names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from byoc_core import script as R
from byoc_core.errors import PartitionError
from byoc_core.ir import IRModule
from byoc_core.partitioning import MergeCompositeFunctions

SIDEWAYS = pytest.mark.parametrize("sideways", [False, True])


def merged(text: str, *, sideways: bool = False) -> IRModule:
    """Return the merged module; a second run must change nothing."""
    merge = MergeCompositeFunctions(sideways)
    after = merge(R.parse(text))
    assert merge(after) is after
    return after


def interfaces(module: IRModule) -> dict[str, tuple[str, str, str]]:
    """Return each region's inputs, ops and outputs, by the names of values."""
    return {
        name: (
            " ".join(param.name for param in region.params),
            " ".join(binding.results[0].name for binding in region.bindings),
            " ".join(getattr(result, "name", "?") for result in region.results),
        )
        for name, region in module.functions.items()
        if "Codegen" in region.attrs
    }


@SIDEWAYS
def test_a_carried_value_that_is_an_output_twice(sideways: bool) -> None:
    """The loop carries ``c`` twice and the body's own ``b`` not at all; ``e`` is unused."""
    module = merged(
        """
def main(n: R.Tensor((), "int64"), p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    def body(i: R.Tensor((), "int64"), a: R.Tensor((4,)), b: R.Tensor((4,))):
        c = R.nn.relu(a, codegen="aone")
        d = R.exp(c)
        e = R.add(c, d, codegen="aone")
        return R.const(True, "bool"), c, c
    u, v = R.loop(n, p, x, x, regions=[body])
    return u, v, u
""",
        sideways=sideways,
    )
    assert interfaces(module) == {"aone_main_0": ("a", "c", "c"), "aone_main_1": ("c d", "e", "e")}


@SIDEWAYS
def test_constants_inputs_and_one_value_twice_as_results_of_the_function(sideways: bool) -> None:
    module = merged(
        """
def main(x: R.Tensor((4,))):
    a = R.nn.relu(x, codegen="aone")
    b = R.tanh(a, codegen="aone")
    return R.const([1.0, 2.0], "float32"), b, a, b, x
""",
        sideways=sideways,
    )
    assert interfaces(module) == {"aone_main_0": ("x", "a b", "a b")}


@SIDEWAYS
def test_a_region_that_nothing_reads_gives_one_value(sideways: bool) -> None:
    module = merged(
        """
def main(x: R.Tensor((4,))):
    a = R.nn.relu(x, codegen="aone")
    b, c = R.split(a, sections=(2, 2), codegen="aone")
    return x
""",
        sideways=sideways,
    )
    assert interfaces(module) == {"aone_main_0": ("x", "a b", "b")}


@SIDEWAYS
def test_a_region_of_constants_has_no_input(sideways: bool) -> None:
    module = merged(
        """
def main():
    a = R.add(R.const([1.0, 2.0], "float32"), R.const([1.0, 2.0], "float32"), codegen="aone")
    return a
""",
        sideways=sideways,
    )
    assert interfaces(module) == {"aone_main_0": ("", "a", "a")}


@SIDEWAYS
def test_a_size_comes_from_an_input_that_is_not_read_otherwise(sideways: bool) -> None:
    """Also into a branch, with ``s`` as a parameter."""
    module = merged(
        """
def main(s: R.Tensor(("n",)), p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    a = R.full(R.const(1.0, "float32"), shape=("n",), codegen="aone")
    def yes(y: R.Tensor((4,))):
        b = R.full(R.const(1.0, "float32"), shape=("n",), codegen="aone")
        return b
    def no(y: R.Tensor((4,))):
        c = R.full(R.const(2.0, "float32"), shape=("n",), codegen="btwo")
        return c
    d = R.if_(p, x, regions=[yes, no])
    return a, d
""",
        sideways=sideways,
    )
    assert interfaces(module) == {
        "aone_main_0": ("s_1", "b", "b"),
        "btwo_main_0": ("s_2", "c", "c"),
        "aone_main_1": ("s", "a", "a"),
    }


@SIDEWAYS
def test_a_size_that_only_data_tells_is_given_by_what_has_it(sideways: bool) -> None:
    module = merged(
        """
def main(x: R.Tensor((4,))):
    a = R.nonzero(x, codegen="aone", out_types=[R.Tensor((1, "k"), "int64")])
    b = R.full(R.const(1.0, "float32"), shape=("k",), codegen="aone")
    c = R.nn.relu(b, codegen="btwo")
    return c
""",
        sideways=sideways,
    )
    assert interfaces(module) == {
        "aone_main_0": ("x", "a", "a"),
        "aone_main_1": ("a", "b", "b"),
        "btwo_main_0": ("b", "c", "c"),
    }


@SIDEWAYS
def test_an_effect_behind_calls_and_bodies_is_a_barrier(sideways: bool) -> None:
    """``wrap`` logs in a single branch, and ``main`` calls ``wrap`` in a branch: both are barriers in their bodies."""
    module = merged(
        """
class M:
    def log(x: R.Tensor((4,))):
        y = R.call_packed("log", (x,), out_types=[R.Tensor((4,))])
        return y
    def wrap(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
        def yes(a: R.Tensor((4,))):
            b = log(a)
            return b
        def no(a: R.Tensor((4,))):
            return a
        c = R.if_(p, x, regions=[yes, no])
        return c
    def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
        a = R.nn.relu(x, codegen="aone")
        def yes(b: R.Tensor((4,))):
            c = R.exp(b, codegen="aone")
            d = wrap(R.const(True, "bool"), b)
            e = R.tanh(b, codegen="aone")
            f = R.add(c, e, codegen="aone")
            return f
        def no(b: R.Tensor((4,))):
            return b
        g = R.if_(p, a, regions=[yes, no])
        h = R.tanh(a, codegen="aone")
        i = R.add(h, g, codegen="aone")
        return i
""",
        sideways=sideways,
    )
    assert interfaces(module) == {
        "aone_main_0": ("b", "c", "c"),
        "aone_main_1": ("b c", "e f", "f"),
        "aone_main_2": ("x", "a", "a"),
        "aone_main_3": ("a g", "h i", "i"),
    }


@SIDEWAYS
def test_bodies_in_bodies_have_regions_of_their_own(sideways: bool) -> None:
    module = merged(
        """
def main(n: R.Tensor((), "int64"), p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    def outer(i: R.Tensor((), "int64"), a: R.Tensor((4,)), q: R.Tensor((), "bool")):
        b = R.nn.relu(a, codegen="aone")
        def yes(c: R.Tensor((4,)), m: R.Tensor((), "int64"), r: R.Tensor((), "bool")):
            def inner(j: R.Tensor((), "int64"), d: R.Tensor((4,))):
                e = R.exp(d, codegen="aone")
                f = R.tanh(e, codegen="aone")
                return R.const(True, "bool"), f
            g = R.loop(m, r, c, regions=[inner])
            h = R.nn.relu(g, codegen="aone")
            return h
        def no(c: R.Tensor((4,)), m: R.Tensor((), "int64"), r: R.Tensor((), "bool")):
            return c
        k = R.if_(q, b, i, q, regions=[yes, no])
        l = R.add(b, k, codegen="aone")
        return q, l, q
    o, q2 = R.loop(n, p, x, p, regions=[outer])
    return o
""",
        sideways=sideways,
    )
    assert sorted(ops for _, ops, _ in interfaces(module).values()) == ["b", "e f", "h", "l"]


def test_names_of_regions_avoid_functions_and_are_identifiers() -> None:
    module = merged("""
class M:
    def aone_main_0(x: R.Tensor((4,))):
        y = R.nn.relu(x, codegen="aone")
        return y
    def aone_main(x: R.Tensor((4,))):
        y = R.nn.relu(x, codegen="aone")
        return y
    def main(x: R.Tensor((4,))):
        R.func_attr({"global_symbol": "aone_main_1"})
        y = R.nn.relu(x, codegen="aone")
        z = R.tanh(y, codegen="2 fast")
        return z
""")
    assert list(interfaces(module)) == ["aone_aone_main_0_0", "aone_aone_main_0", "aone_main_2", "_2_fast_main_0"]


@pytest.mark.parametrize(
    ("lines", "op"),
    [
        (['y = R.call_packed("log", (x,), out_types=[R.Tensor((4,))], codegen="aone")'], "call_packed"),
        (['y = other(x, codegen="aone")'], "call"),
        (
            [
                "def yes(a: R.Tensor((4,))):",
                "    return a",
                "def no(a: R.Tensor((4,))):",
                "    return a",
                'y = R.if_(R.const(True, "bool"), x, regions=[yes, no], codegen="aone")',
            ],
            "if",
        ),
    ],
)
def test_a_claim_of_a_call_or_of_control_flow_is_refused(lines: Sequence[str], op: str) -> None:
    body = "".join(f"        {line}\n" for line in lines)
    module = R.parse(f"""
class M:
    def other(x: R.Tensor((4,))):
        y = R.nn.relu(x)
        return y
    def main(x: R.Tensor((4,))):
{body}        return y
""")
    with pytest.raises(PartitionError) as caught:
        MergeCompositeFunctions()(module)
    assert str(caught.value).partition("\n")[0] == (
        f"function `main`, binding `y`: `{op}` is claimed for `aone`, but no region may contain this op. "
        "Claim pure ops and composites only; claim the ops of a body inside the body."
    )
    assert "> " in str(caught.value)
