"""Grouping, outlining and merging in cases rarely drawn at random: small graphs, names, bodies, refusals."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from byoc_core import script as R
from byoc_core.errors import InternalError, PartitionError
from byoc_core.ir import IF, Binding, Function, IRModule
from byoc_core.ir.module import Location
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.ir.sizes import SizeSources
from byoc_core.partitioning import MergeCompositeFunctions
from byoc_core.partitioning.merging.grouping import group_claims
from byoc_core.partitioning.merging.outline import Outliner, outline_claims
from hypothesis import settings

from core.tests.partitioning.test_grouping import are_acyclic, assert_maximal, graph


def random_claims(seed: int) -> Mapping[str, tuple[str | None, Sequence[str]]]:
    rng = random.Random(seed)
    names = (None, "one", "two", "three")[: rng.choice([2, 3, 4])]
    claims: dict[str, tuple[str | None, Sequence[str]]] = {}
    for index in range(rng.randint(4, 30)):
        reach = min(index, rng.choice([3, 9, index + 1]))
        reads = {f"v{index - 1 - rng.randrange(reach)}" for _ in range(rng.choice([0, 1, 2, 3])) if index}
        claims[f"v{index}"] = (rng.choice(names), sorted(reads))
    return claims


def test_groups_of_small_graphs_are_acyclic_and_maximal() -> None:
    for seed in range(10 * settings().max_examples):
        bindings = graph(random_claims(seed))
        groups = group_claims(bindings, [0] * len(bindings))
        assert are_acyclic(bindings, groups), f"seed {seed}"
        assert_maximal(bindings, groups)


def test_groups_stay_within_an_epoch_and_a_claim() -> None:
    for seed in range(settings().max_examples):
        bindings = graph(random_claims(seed))
        epochs = sorted(random.Random(seed).choice([0, 1, 2, 4]) for _ in bindings)
        groups = group_claims(bindings, epochs)
        for position, group in enumerate(groups):
            assert epochs[group] == epochs[position]
            assert bindings[group].codegen == bindings[position].codegen
            assert bindings[position].codegen is not None or group == position


CHAIN = """
def main(x: R.Tensor((4,))):
    a = R.nn.relu(x, codegen="aone")
    b = R.exp(a)
    c = R.tanh(b, codegen="aone")
    return c
"""


def test_groups_that_depend_on_one_another_are_an_error_that_shows_the_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("byoc_core.partitioning.merging.merge.group_claims", lambda _bindings, _epochs: [0, 1, 0])
    with pytest.raises(InternalError) as caught:
        MergeCompositeFunctions()(R.parse(CHAIN))
    first, _, window = str(caught.value).partition("\n")
    assert first.startswith("function `main`: the regions depend on each other in a cycle")
    assert "a: R.Tensor" in window or "a = R.nn.relu(x" in window


def test_a_function_that_is_a_region_already_is_left_alone() -> None:
    module = R.parse("""
class M:
    def region(x: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "region"})
        y = R.nn.relu(x, codegen="aone")
        return y
    def main(x: R.Tensor((4,))):
        a = R.nn.relu(x, codegen="aone")
        y = region(a)
        return y
""")
    after = MergeCompositeFunctions()(module)
    assert after.functions["region"] is module.functions["region"]
    assert list(after.functions) == ["aone_main_0", "region", "main"]


def test_a_claim_that_no_region_may_hold_is_shown_where_it_stands() -> None:
    module = R.parse("""
def main(x: R.Tensor((4,))):
    w = R.exp(x)
    two = R.const([1.0, 2.0], "float32")
    y, z = R.call_packed("log", (w, two), out_types=[R.Tensor((4,)), R.Tensor((4,))], codegen="aone")
    return y, z
""")
    with pytest.raises(PartitionError) as caught:
        MergeCompositeFunctions()(module)
    first, *window = str(caught.value).splitlines()
    assert first.startswith("function `main`, binding `y, z`: `call_packed` is claimed for `aone`, but no region may")
    (guilty,) = [line for line in window if line.startswith(">")]
    assert 'R.call_packed("log"' in guilty
    assert "[1.0, 2.0]" in guilty


class External:
    function_names = ("aone_main_0", "aone_main_3")


def outlined(module: IRModule, claimed: Sequence[Binding]) -> list[str]:
    outliner = Outliner(module)
    visible = SizeSources(module.functions["main"].params)
    for binding in claimed:
        outliner.outline("main", [binding], binding.results, visible)
    return list(outliner.functions)


def test_names_that_the_module_or_what_it_calls_has_are_not_given_again() -> None:
    module = R.parse("""
class M:
    def aone_main_1(x: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_4"})
        y = R.nn.relu(x)
        return y
    def main(x: R.Tensor((4,))):
        a = R.nn.relu(x, codegen="aone")
        b = R.call_dps_packed("aone_main_5", (a,), out_types=[R.Tensor((4,))])
        c = R.call_packed("aone_main_6", (a,), out_types=[R.Tensor((4,))])
        return b, c
""").with_attrs(**{EXTERNAL_MODULES: (External(),)})
    (claimed, *_) = module.functions["main"].bindings
    names = outlined(module, [claimed] * 4)
    assert names == ["aone_main_2", "aone_main_7", "aone_main_8", "aone_main_9"]


def test_the_call_of_a_region_stands_where_its_first_op_came_from() -> None:
    module = R.parse(CHAIN)
    main = module.functions["main"]
    bindings = [replace(binding, location=Location("m.onnx", f"node{at}")) for at, binding in enumerate(main.bindings)]
    outliner = Outliner(module)
    call = outliner.outline("main", bindings[:2], bindings[1].results, SizeSources(main.params))
    assert call.location == Location("m.onnx", "node0")


def is_claimed(binding: Binding) -> bool:
    return binding.codegen is not None


def test_claims_in_bodies_are_outlined_too_and_named_after_the_function() -> None:
    module = R.parse("""
def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    def yes(a: R.Tensor((4,))):
        b = R.nn.relu(a, codegen="aone")
        return b
    def no(a: R.Tensor((4,))):
        c, d, e = R.split(a, sections=(1, 1, 2), codegen="btwo")
        f = R.concat(a, codegen="kept")
        return f
    y = R.if_(p, x, regions=[yes, no])
    return y
""")
    after = outline_claims(module, lambda binding: is_claimed(binding) and binding.codegen != "kept")
    assert list(after.functions) == ["aone_main_0", "btwo_main_0", "main"]
    assert [function.attrs.get("source") for function in after.functions.values()] == ["main", "main", None]
    (choice,) = after.functions["main"].bindings
    assert choice.op is IF
    assert [binding.op.name for region in choice.regions for binding in region.bindings] == ["call", "call", "concat"]
    # Of a claim whose results nobody reads, the region gives the first.
    assert [names_of(after.functions[name]) for name in ("aone_main_0", "btwo_main_0")] == [["b"], ["c"]]


def names_of(function: Function) -> list[str]:
    return [getattr(result, "name", "?") for result in function.results]


def test_a_module_without_wanted_claims_is_given_back() -> None:
    module = R.parse(CHAIN)
    assert outline_claims(module, lambda _binding: False) is module
