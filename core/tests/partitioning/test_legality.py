"""The legality checker: each broken merger is caught, by the broken law."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import byoc_core.ir.sizes
import byoc_core.partitioning.checking.legality
import byoc_core.partitioning.checking.unfolding
import byoc_core.partitioning.merging.merge
import pytest
from byoc_core import script as R
from byoc_core.errors import InternalError
from byoc_core.ir import Binding, Function, IRModule
from byoc_core.partitioning import MergeCompositeFunctions, check_partition
from byoc_core.partitioning.merging.outline import Outliner
from byoc_core.transform.rewrite import clone_bindings

MERGE = byoc_core.partitioning.merging.merge
CLAIMED = R.parse("""
def main(x: R.Tensor((4,)), y: R.Tensor((4,))):
    a = R.subtract(x, y, codegen="aone")
    b = R.nn.relu(a, codegen="aone")
    c = R.exp(b)
    d = R.add(a, c, codegen="aone")
    e, f = R.split(d, sections=(2, 2), codegen="aone")
    g = R.call_packed("log", (f,), out_types=[R.Tensor((2,))])
    h = R.multiply(e, g, codegen="aone")
    return h, f
""")


def problem_of(module: IRModule = CLAIMED) -> str:
    with pytest.raises(InternalError) as caught:
        MergeCompositeFunctions()(module)
    return f"{caught.value.where}: {caught.value.problem}"


def test_the_unbroken_merger_passes() -> None:
    after = MergeCompositeFunctions()(CLAIMED)
    check_partition(CLAIMED, after)
    assert [name for name in after.functions if name != "main"] == ["aone_main_0", "aone_main_1", "aone_main_2"]


def test_a_merger_without_convexity_check_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(bindings: Sequence[Binding], epochs: Sequence[int]) -> list[int]:
        return [0 if binding.codegen and epochs[i] == 0 else i for i, binding in enumerate(bindings)]

    monkeypatch.setattr(MERGE, "group_claims", everything)
    assert problem_of() == "function `main`: the regions depend on each other in a cycle"


def test_a_merger_that_ignores_the_cycle_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(bindings: Sequence[Binding], epochs: Sequence[int]) -> list[int]:
        return [0 if binding.codegen and epochs[i] == 0 else i for i, binding in enumerate(bindings)]

    def by_first(bindings: Sequence[Binding], group_of: Sequence[int], epochs: Sequence[int]) -> list[list[int]]:
        return [[i for i, g in enumerate(group_of) if g == group] for group in dict.fromkeys(group_of)]

    monkeypatch.setattr(MERGE, "group_claims", everything)
    monkeypatch.setattr(MERGE, "sort_groups", by_first)
    assert (
        "made an invalid module: function `main`, binding `b, e, f`: operand `c` is read before the definition"
        in problem_of()
    )


def test_a_merger_that_crosses_an_impure_call_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_barriers(function: Function, functions: object) -> list[int]:
        return [0] * len(function.bindings)

    module = R.parse("""
def main(x: R.Tensor((4,))):
    a = R.call_packed("first", (x,), out_types=[R.Tensor((4,))])
    b = R.nn.relu(x, codegen="aone")
    c = R.call_packed("second", (x,), out_types=[R.Tensor((4,))])
    return a, b, c
""")

    def swapped(bindings: Sequence[Binding], group_of: Sequence[int], epochs: Sequence[int]) -> list[list[int]]:
        return [[2], [1], [0]]

    monkeypatch.setattr(MERGE, "barrier_epochs", no_barriers)
    monkeypatch.setattr(MERGE, "sort_groups", swapped)
    assert problem_of(module) == "partition: changed the results of function `main`"
    unread = module.with_function(replace(module["main"], results=module["main"].bindings[1].results))
    assert problem_of(unread) == "partition: changed the impure ops or the order of impure ops of function `main`"


def test_an_impure_call_inside_a_body_counts() -> None:
    text = """
def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    def yes(a: R.Tensor((4,))):
        b = R.call_packed("log", (a,), out_types=[R.Tensor((4,))])
        return a
    def no(c: R.Tensor((4,))):
        return c
    d = R.if_(p, x, regions=[yes, no])
    e = R.call_packed("log", (x,), out_types=[R.Tensor((4,))])
    return x
"""
    before = R.parse(text)
    main = before["main"]
    after = before.with_function(replace(main, bindings=main.bindings[::-1]))
    with pytest.raises(InternalError, match="changed the impure ops or the order of impure ops of function `main`"):
        check_partition(before, after)


class Breaking(Outliner):
    """An outliner spoiling functions."""

    spoil: Callable[[Function], Function] = staticmethod(lambda function: function)

    def outline(self, *arguments: Any) -> Binding:
        call = super().outline(*arguments)
        name = str(call.attrs["callee"])
        self.functions[name] = type(self).spoil(self.functions[name])
        return call


def breaking(spoil: Callable[[Function], Function]) -> type[Outliner]:
    return type("Broken", (Breaking,), {"spoil": staticmethod(spoil)})


def dropped(function: Function) -> Function:
    """Leave out ``relu`` and return the operand instead."""
    relu = next((b for b in function.bindings if b.op.name == "nn.relu"), None)
    if relu is None:
        return function
    results = tuple(relu.operands[0] if r is relu.result else r for r in function.results)
    return replace(function, bindings=tuple(b for b in function.bindings if b is not relu), results=results)


def swapped_results(function: Function) -> Function:
    return replace(function, results=function.results[::-1])


def swapped_operands(function: Function) -> Function:
    bindings = tuple(replace(b, operands=b.operands[::-1]) if b.op.name == "subtract" else b for b in function.bindings)
    return replace(function, bindings=bindings)


def repeated(function: Function) -> Function:
    first = function.bindings[0]
    return replace(function, bindings=(*function.bindings, *clone_bindings([first], {})))


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (dropped, "changed the results"),
        (swapped_results, "changed the results"),
        (swapped_operands, "changed the results"),
        (repeated, "changed the ops, or the number of runs of an op,"),
    ],
)
def test_a_merger_that_spoils_a_region_is_caught(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Function], Function], problem: str
) -> None:
    monkeypatch.setattr(MERGE, "Outliner", breaking(spoil))
    assert problem_of() == f"partition: {problem} of function `main`"


def test_a_merger_that_drops_a_dead_op_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    module = R.parse("""
def main(x: R.Tensor((4,))):
    a = R.nn.relu(x, codegen="aone")
    b = R.nn.relu(a, codegen="aone")
    return a
""")
    cut = breaking(lambda function: replace(function, bindings=function.bindings[:1]))
    monkeypatch.setattr(MERGE, "Outliner", cut)
    assert problem_of(module) == "partition: changed the ops, or the number of runs of an op, of function `main`"


def test_a_lost_output_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = MERGE._outputs
    monkeypatch.setattr(MERGE, "_outputs", lambda members, readers: outputs(members, readers)[:1])
    assert "is read before the definition" in problem_of()


def test_an_output_that_nothing_reads_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MERGE, "_outputs", lambda members, readers: [r for b in members for r in b.results])
    module = R.parse("""
def main(x: R.Tensor((4,))):
    a = R.nn.relu(x, codegen="aone")
    b = R.nn.relu(a, codegen="aone")
    return b
""")
    assert problem_of(module) == "region `aone_main_0`: has an unread output"


def test_an_input_that_is_not_read_is_caught() -> None:
    before = R.parse("def main(x: R.Tensor((4,)), y: R.Tensor((4,))):\n    a = R.nn.relu(x)\n    return a")
    after = R.parse("""
class M:
    def region(x: R.Tensor((4,)), y: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "region"})
        a = R.nn.relu(x)
        return a
    def main(x: R.Tensor((4,)), y: R.Tensor((4,))):
        a = region(x, y)
        return a
""")
    with pytest.raises(InternalError, match="region `region`: does not read the input `y`"):
        check_partition(before, after)


def test_an_input_that_gives_a_size_is_no_fault() -> None:
    """``m//2`` and ``a*b`` determine no size, so the regions take ``x`` for ``m``, ``a`` and ``b``."""
    module = R.parse("""
def main(x: R.Tensor(("m",)), y: R.Tensor(("a", "b"))):
    p = R.full(R.const(1.0, "float32"), shape=("m//2",))
    q = R.nn.relu(p, codegen="aone")
    r = R.reshape(y, shape=("a*b",))
    s = R.reshape(r, shape=("a", "b"), codegen="aone")
    return q, s
""")
    merged = MergeCompositeFunctions()(module)
    regions = [function for function in merged.functions.values() if "Codegen" in function.attrs]
    assert [[str(param.type) for param in region.params] for region in regions] == [
        ['R.Tensor(("m//2",), "float32")', 'R.Tensor(("m",), "float32")'],
        ['R.Tensor(("a*b",), "float32")', 'R.Tensor(("a", "b"), "float32")'],
    ]


def test_an_input_twice_and_a_region_called_twice_are_caught() -> None:
    before = R.parse("def main(x: R.Tensor((4,))):\n    a = R.add(x, x)\n    return a")
    region = """
class M:
    def region(x: R.Tensor((4,)), y: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "region"})
        a = R.add(x, y)
        return a
    def main(x: R.Tensor((4,))):
        a = region(x, x)
        return a
"""
    with pytest.raises(InternalError, match="region `region`: has a duplicate input"):
        check_partition(before, R.parse(region))
    two = R.parse("def main(x: R.Tensor((4,))):\n    a = R.add(x, x)\n    b = R.add(x, x)\n    return a, b")
    called_twice = region.replace("return a\n", "return a\n", 1).replace(
        "        a = region(x, x)\n        return a\n",
        "        a = region(x, x)\n        b = region(x, x)\n        return a, b\n",
    )
    with pytest.raises(InternalError, match="region `region`: is called 2 times, not once"):
        check_partition(two, R.parse(called_twice))


def test_a_lost_function_is_caught() -> None:
    before = R.parse("def main(x: R.Tensor((4,))):\n    a = R.nn.relu(x)\n    return a")
    with pytest.raises(InternalError, match="partition: lost function `main`"):
        check_partition(before, before.with_functions({}))


def test_the_checker_shares_no_code_with_the_merger() -> None:
    checker = (byoc_core.partitioning.checking.legality, byoc_core.partitioning.checking.unfolding)
    lines = [line for module in checker for line in inspect.getsource(module).splitlines()]
    imported = {line.split()[1] for line in lines if line.startswith(("import", "from"))}
    assert {name for name in imported if name.startswith("byoc_core")} == {
        "byoc_core.errors",
        "byoc_core.ir",
        "byoc_core.ir.printer",
        "byoc_core.ir.sizes",
        "byoc_core.partitioning.checking.unfolding",
    }
    sizes = vars(byoc_core.ir.sizes).keys() & {*vars(checker[0]), *vars(checker[1])} & {*byoc_core.ir.sizes.__all__}
    assert sizes == {"given_symbols", "type_symbols"}  # what a type says, not what depends on what
    assert not any(hasattr(module, "is_pure") for module in checker)


def test_an_error_in_a_large_function_shows_a_few_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"    v{index} = R.nn.relu({f'v{index - 1}' if index else 'x'})" for index in range(1000)]
    before = R.parse("\n".join(["def main(x: R.Tensor((4,))):", *lines, "    return v999"]))
    lines[500] = "    v500 = R.tanh(v499)"
    after = R.parse("\n".join(["def main(x: R.Tensor((4,))):", *lines, "    return v999"]))
    head = (
        "\n  @R.function"
        '\n> def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):'
        "\n      v0 = R.nn.relu(x)"
        "\n      v1 = R.nn.relu(v0)"
        "\n      v2 = R.nn.relu(v1)"
    )
    with pytest.raises(InternalError) as caught:
        check_partition(before, before.with_functions({}))
    assert str(caught.value) == "partition: lost function `main`" + head
    window = (
        '  def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):\n'
        "      ...\n"
        "      v497 = R.nn.relu(v496)\n"
        "      v498 = R.nn.relu(v497)\n"
        "      v499 = R.nn.relu(v498)\n"
        ">     v500 = {}(v499)\n"
        "      v501 = R.nn.relu(v500)\n"
        "      v502 = R.nn.relu(v501)\n"
        "      v503 = R.nn.relu(v502)"
    )
    with pytest.raises(InternalError) as caught:
        check_partition(before, after)
    problem = "partition: changed the results of function `main`"
    expected = f"{problem}\nbefore:\n{window.format('R.nn.relu')}\nafter:\n{window.format('R.tanh')}"
    assert str(caught.value) == expected
    monkeypatch.setattr(MERGE, "sort_groups", lambda bindings, group_of, epochs: None)
    claimed = before.with_function(
        replace(before["main"], bindings=tuple(replace(b, codegen="aone") for b in before["main"].bindings))
    )
    with pytest.raises(InternalError) as caught:
        MergeCompositeFunctions()(claimed)
    assert len(str(caught.value).splitlines()) == len(head.splitlines())
