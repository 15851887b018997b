"""A plan searches once for the followers of equal calls, with the same outcome as a search for each call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import ByocError
from byoc_core.ir import tensor
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.lowerings import epilogue
from byoc_dnnl.lowerings.epilogue import _Search
from byoc_dnnl.lowerings.equal_chains import Chain, chain_after
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import Region, check_sums, emit, need_avx512
from plugins.dnnl.tests.drawn_graphs import DrawnGraph
from plugins.dnnl.tests.drawn_layers import drawn_layers
from plugins.dnnl.tests.plan_texts import plan_texts
from plugins.dnnl.tests.test_dnnl_creation import layers

WIDTH = 32

Variant = tuple[str, bool, bool, bool]
"""A layer: the function, and whether a bias is added, the input is added, and the result is read at the end."""

FUNCTIONS = ("", "nn.relu", "nn.gelu", "tanh", "clip", "maximum")


def _function(region: Region, op: str, value: Any) -> Any:
    if op == "clip":
        return emit(region, op, value, min=-1.0, max=1.0)
    if op == "maximum":
        return emit(region, op, value, region.builder.const(np.float32(0.25)))
    return emit(region, op, value) if op else value


def network(variants: list[Variant], *, is_image: bool = False) -> Region:
    """Return blocks of two layers, on any number of rows or images; some equal, some equal up to the other readers."""
    region = Region()
    value = region.builder.param("x", tensor(("n", WIDTH, 6, 6) if is_image else ("n", WIDTH)))
    const = region.builder.const

    def product(operand: Any) -> Any:
        weights = region.draw(*(WIDTH, WIDTH, *((3, 3) if is_image else ()))) / np.float32(WIDTH)
        attrs = {"padding": (1, 1, 1, 1)} if is_image else {}
        return emit(region, "nn.conv2d" if is_image else "matmul", operand, const(weights), **attrs)

    others = []
    for op, has_bias, has_sum, is_read_late in variants:
        result = product(emit(region, "nn.relu", product(value)))
        if has_bias:
            bias = region.draw(*(WIDTH, *((1, 1) if is_image else ())))
            result = emit(region, "add", result, const(bias))
        if has_sum:
            result = emit(region, "add", result, value)
        value = _function(region, op, result)
        if is_read_late:
            others.append(value)
    return region.finish(value, *(emit(region, "abs", other) for other in others))


def plans(region: Region, number: int = 1) -> str:
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    return _plan_of(built, number)


def _plan_of(built: BuiltRegion, number: int) -> str:
    function = built._function if built._is_static else built._forms.at({"n": 3})
    with plan_texts() as text_of:
        found = built._best_plan(number, function)
        return "none" if found is None else f"{found.num_threads} threads\n{text_of(found.plan)}"


@contextmanager
def separate_searches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epilogue, "chain_after", lambda *_: None)
        yield


def plans_without_memory(region: Region, number: int = 1) -> str:
    with separate_searches():
        return plans(region, number)


@contextmanager
def counted_reuses() -> Iterator[list[int]]:
    """Yield the list of the numbers of followers of each chain found by an equal search."""
    reuses: list[int] = []
    found_before = epilogue._found_before

    def count(*arguments: Any) -> Any:
        found = found_before(*arguments)
        if found is not None:
            reuses.append(len(found[1]))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epilogue, "_found_before", count)
        yield reuses


@settings(max_examples=max(1, settings().max_examples // 2), deadline=None)
@given(
    op=st.sampled_from(FUNCTIONS),
    others=st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=3, max_size=6),
    is_image=st.booleans(),
)
def test_plans_are_the_plans_of_separate_searches(
    *, op: str, others: list[tuple[bool, bool, bool]], is_image: bool
) -> None:
    region = network([(op, *other) for other in others], is_image=is_image)
    assert plans(region) == plans_without_memory(region)


@settings(max_examples=max(1, settings().max_examples // 4), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), number=st.integers(1, 2))
def test_plans_of_random_graphs_are_the_plans_of_separate_searches(seed: int, number: int) -> None:
    module = DrawnGraph(np.random.default_rng(seed)).module

    def texts() -> list[str]:
        executable = byoc_core.build(module, backends=["dnnl"])
        regions = [
            region for found in executable.modules if isinstance(found, DnnlModule) for _, region in found.regions()
        ]
        return [_plan_of(region, number) for region in regions if region._is_static]

    with separate_searches():
        expected = texts()
    assert texts() == expected


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), number=st.integers(1, 2))
def test_plans_of_repeated_layers_are_the_plans_of_separate_searches(seed: int, number: int) -> None:
    region = drawn_layers(seed)
    assert plans(region, number) == plans_without_memory(region, number)


def test_most_drawn_networks_reuse_searches_without_another_plan() -> None:
    need_avx512()
    num_reusing = 0
    for seed in range(60):
        region = drawn_layers(seed)
        with counted_reuses() as reuses:
            found = plans(region)
        assert found == plans_without_memory(region), f"seed {seed}"
        num_reusing += any(reuses)
    assert num_reusing > 30


Fault = Callable[[Chain, Sequence[Any]], tuple[Any, ...]]
"""A key with less than the whole key of a chain, given the calls before the chain."""


def _by_kind(chain: Chain, calls: Sequence[Any], describe: Callable[[Any], str]) -> tuple[Any, ...]:
    """Return the key with descriptions of calls in place of the kinds, the only integers."""
    texts = {call.kind: describe(call) for call in (*calls, *chain.calls)}
    return tuple(texts[part] if type(part) is int else part for part in chain.key)


def _without_layouts(chain: Chain, _: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(part[1:] if isinstance(part, tuple) else part for part in chain.key)


def _without_attributes(chain: Chain, calls: Sequence[Any]) -> tuple[Any, ...]:
    return _by_kind(chain, calls, lambda call: f"{call.op} {[value.shape for value in call.operands]}")


def _without_shapes(chain: Chain, calls: Sequence[Any]) -> tuple[Any, ...]:
    """Return the key without layouts either: a layout has sizes."""
    key = _by_kind(chain, calls, lambda call: f"{call.op} {[*call.attrs.items()]}")
    return _without_layouts(chain._replace(key=key), calls)


def _without_overwriting(chain: Chain, _: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(part[:1] if isinstance(part, tuple) else part for part in chain.key)


def _without_results(chain: Chain, _: Sequence[Any]) -> tuple[Any, ...]:
    return chain.key[:-1]


@pytest.mark.parametrize(
    "fault", [_without_layouts, _without_attributes, _without_shapes, _without_overwriting, _without_results]
)
def test_a_key_without_a_fact_changes_plans(fault: Fault) -> None:
    """The comparison of whole plans finds each fault of the key."""
    need_avx512()

    def weaker(calls: Sequence[Any], *others: Any) -> Chain | None:
        chain = chain_after(calls, *others)
        return chain and chain._replace(key=fault(chain, calls))

    def is_changed(region: Region) -> bool:
        expected = plans(region)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(epilogue, "chain_after", weaker)
            try:
                return plans(region) != expected
            except (AssertionError, ByocError):  # a location does not fit the descriptor found
                return True

    assert any(is_changed(drawn_layers(seed)) for seed in range(200))


def test_equal_layers_are_searched_once() -> None:
    need_avx512()

    def count_searches(num_layers: int) -> int:
        searches: Counter[str] = Counter()
        original = _Search.whole_chain

        def search(self: _Search, usual: Any) -> Any:
            searches[self.calls[0].op] += 1
            return original(self, usual)

        built = layers(num_layers).module.get_function("f").impl
        assert isinstance(built, BuiltRegion)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_Search, "whole_chain", search)
            assert built._best_plan(1, built._forms.at({"n": 300})) is not None
        return searches["matmul"]

    assert count_searches(6) == count_searches(3) < 6


@pytest.mark.parametrize("op", ["", "nn.relu"])
@pytest.mark.parametrize("is_image", [False, True])
def test_a_sum_overwrites_no_value_read_late(op: str, *, is_image: bool) -> None:
    """Most sums overwrite their operand; a sum on a value read at the end, or a result, must not."""
    early, late = (op, True, True, False), (op, True, True, True)
    for variants in ([early] * 4, [early, early, early, late, early], [early, late, early, early, early]):
        region = network(variants, is_image=is_image)
        assert plans(region) == plans_without_memory(region)
        length = 2 * ((9 if is_image else 1) * WIDTH + 4)
        check_sums(region, [region.draw(3, WIDTH, *((6, 6) if is_image else ()))], len(variants) * length)
