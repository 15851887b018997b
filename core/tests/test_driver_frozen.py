"""A backend changing frozen IR in place is named; no message blames byoc."""

from __future__ import annotations

from collections.abc import Callable

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.dtypes import to_numpy
from byoc_core.errors import PluginError
from byoc_core.ir import Binding, ConstantStore, IRModule
from byoc_core.ir.snapshot import Snapshot
from byoc_core.pattern import Support

from core.tests.conftest import FakeBackend

TEXT = """
def main(x: R.Tensor((2, 4))):
    a = R.nn.relu(x)
    b = R.add(a, a)
    c = R.sum(b, axis=[1])
    return c
"""


def drop_binding(module: IRModule) -> None:
    main = module["main"]
    object.__setattr__(main, "bindings", main.bindings[:-1])


def swap_op(module: IRModule) -> None:
    first, second, _ = module["main"].bindings
    object.__setattr__(second, "op", first.op)


def change_operands(module: IRModule) -> None:
    second = module["main"].bindings[1]
    object.__setattr__(second, "operands", second.operands[:1])


def rename_value(module: IRModule) -> None:
    module["main"].bindings[0].results[0].name = "other"


def retype_value(module: IRModule) -> None:
    module["main"].bindings[0].results[0].type = module["main"].bindings[2].result.type


def reshape_type(module: IRModule) -> None:
    object.__setattr__(module["main"].params[0].type, "shape", (3, 4))


def change_attrs(module: IRModule) -> None:
    last = module["main"].bindings[2]
    object.__setattr__(last, "attrs", {**last.attrs, "axis": (0,)})


def drop_results(module: IRModule) -> None:
    object.__setattr__(module["main"], "results", ())


def drop_functions(module: IRModule) -> None:
    object.__setattr__(module, "functions", {})


CHANGES: list[Callable[[IRModule], None]] = [
    drop_binding,
    swap_op,
    change_operands,
    rename_value,
    retype_value,
    reshape_type,
    change_attrs,
    drop_results,
    drop_functions,
]


def spoiler(hook: str, change: Callable[[IRModule], None]) -> FakeBackend:
    """Return a backend with a hook changing the module at the first call."""
    seen: list[IRModule] = []
    changed: list[IRModule] = []

    def spoil(now: str) -> None:
        if now == hook and not changed:
            changed.append(seen[0])
            change(seen[0])

    def prepare(module: IRModule) -> IRModule:
        seen.append(module)
        spoil("byoc_prepare")
        return module

    def supports(_: Binding) -> Support:
        spoil("byoc_supports")
        return Support()

    return FakeBackend("spoiler", prepare=prepare, supports=supports)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("hook", ["byoc_prepare", "byoc_supports"])
def test_whoever_changes_a_module_in_place_is_named(hook: str, change: Callable[[IRModule], None]) -> None:
    expected = r"changed a module in place\. IR is frozen: .* fault of spoiler, not of byoc"
    with pytest.raises(PluginError, match=expected) as caught:
        byoc_core.build(R.parse(TEXT), [spoiler(hook, change)])
    assert "`spoiler`" in caught.value.where


@pytest.mark.parametrize("change", CHANGES)
def test_a_snapshot_sees_each_change(change: Callable[[IRModule], None]) -> None:
    module = R.parse(TEXT)
    snapshot = Snapshot(module)
    assert snapshot.is_current()
    change(module)
    assert not snapshot.is_current()


def test_a_backend_that_keeps_the_law_is_not_blamed() -> None:
    byoc_core.build(R.parse(TEXT), [FakeBackend("honest", None, prepare=lambda module: module.with_attrs(seen=1))])


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16"])
def test_nobody_makes_constants_writable(shape: tuple[int, ...], dtype: str) -> None:
    store = ConstantStore()
    given = np.ones(shape, to_numpy(dtype))
    reference = store.add(given)
    other = ConstantStore()
    other.adopt(reference, np.ones(shape, to_numpy(dtype)))
    for array in (store[reference.digest], other[reference.digest]):
        np.testing.assert_array_equal(array, given)
        assert array.shape == shape
        if array.size:
            with pytest.raises(ValueError, match="cannot set WRITEABLE"):
                array.flags.writeable = True
        else:
            assert not array.flags.writeable
