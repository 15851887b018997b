"""The user's options for a partition: forced ops, ends of offloading, allowed ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from byoc_core import script as R
from byoc_core.errors import OptionsError, PartitionError
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionLog, PartitionOptions, partition
from byoc_core.pattern import CompositePattern, is_op, wildcard

from core.tests.conftest import FakeBackend
from core.tests.partitioning.conftest import Placement

CHAIN = """
def main(x: R.Tensor((4,))):
    a = R.tanh(x)
    b = R.nn.relu(a)
    c = R.exp(b)
    d = R.tanh(c)
    return d
"""

CONTROL = """
def side(x: R.Tensor((4,))):
    s = R.tanh(x)
    t = R.exp(s)
    return t

def main(flag: R.Tensor((), "bool"), x: R.Tensor((4,))):
    a = R.tanh(x)
    def then_branch(p: R.Tensor((4,))):
        q = R.tanh(p)
        r = R.exp(q)
        return r
    def else_branch(u: R.Tensor((4,))):
        v = R.exp(u)
        return v
    y = R.if_(flag, a, regions=[then_branch, else_branch])
    z = side(y)
    w = R.exp(a)
    return z, w
"""


@pytest.fixture
def two(fake_backend: type[FakeBackend]) -> list[FakeBackend]:
    """Two backends claiming everything."""
    return [fake_backend("aone", None), fake_backend("btwo", None)]


@pytest.fixture
def offloaded(two: list[FakeBackend], placement: type[Placement]) -> Callable[..., str]:
    """Gives a letter for each op that is offloaded, behind its name: ``a`` or ``b``."""

    def find(
        module: str | IRModule,
        *args: Any,
        backends: Sequence[FakeBackend] | None = None,
        log: PartitionLog | None = None,
        **kwargs: Any,
    ) -> str:
        source = R.parse(module) if isinstance(module, str) else module
        options = PartitionOptions(*args, **kwargs)
        parted = partition(source, backends or two, partition_options=options, log=log)
        assert partition(parted, backends or two, partition_options=options) == parted
        where = placement(parted)
        backend_of = {name: where.backend_of[region] for name, region in where.region_of.items()}
        return " ".join(f"{name}:{backend[0]}" for name, backend in sorted(backend_of.items()))

    return find


FORCED = {
    "a:a b:a c:a d:a": {},
    "a:a b:b c:a d:a": {"b": "btwo"},
    "a:a b:a d:a": {"%c": "host"},
    "a:b c:a d:b": {"a": "btwo", "main/d": "btwo", "b": "host"},
    "a:b b:b c:b d:b": {"*": "btwo"},
    "a:b b:b c:a d:b": {"main/*": "btwo", "c": "aone"},
    "a:b b:b c:b": {"[a-c]": "btwo", "d": "host"},
}


@pytest.mark.parametrize("expected", FORCED)
def test_ops_go_where_the_user_forces_them(expected: str, offloaded: Callable[..., str]) -> None:
    assert offloaded(CHAIN, force=FORCED[expected]) == expected


def test_an_exact_name_goes_before_a_glob_in_any_order(offloaded: Callable[..., str]) -> None:
    entries = {"*": "host", "b": "aone"}
    assert offloaded(CHAIN, force=entries) == "b:a"
    assert offloaded(CHAIN, force=dict(reversed(entries.items()))) == "b:a"


def test_the_name_of_control_flow_stands_for_its_bodies(offloaded: Callable[..., str]) -> None:
    assert offloaded(CONTROL, force={"y": "btwo"}) == "a:a q:b r:b s:a t:a v:b w:a"
    assert offloaded(CONTROL, force={"side/*": "host", "q": "host"}) == "a:a r:a v:a w:a"


def test_a_composite_with_an_op_that_is_forced_elsewhere_is_declined(
    fake_backend: type[FakeBackend], offloaded: Callable[..., str]
) -> None:
    pattern = CompositePattern("aone.pair", is_op("nn.relu")(is_op("tanh")(wildcard())))
    aone = fake_backend("aone", ["exp"], [pattern])
    log = PartitionLog()
    assert offloaded(CHAIN, force={"a": "host"}, backends=[aone], log=log) == "c:a"
    (pair, _) = log.refusals("main", "b")
    assert (pair.pattern, pair.rejection.code, pair.rejection.text) == (
        "aone.pair",
        "forced",
        "the user forces the op to `host`",
    )
    assert offloaded(CHAIN, force={"a": "aone"}, backends=[aone]) == "a:a b:a c:a"


def test_a_backend_that_does_not_take_a_forced_op_is_an_error_with_its_reason(fake_backend: type[FakeBackend]) -> None:
    picky = [fake_backend("aone", ["exp"]), fake_backend("btwo", None)]
    with pytest.raises(PartitionError) as caught:
        partition(R.parse(CHAIN), picky, partition_options=PartitionOptions(force={"[ab]": "aone"}))
    assert str(caught.value) == (
        "op `tanh` at `a` of function `main`: is forced to `aone`, but the backend refuses the op (op): "
        "no `tanh` here\n"
        "op `nn.relu` at `b` of function `main`: is forced to `aone`, but the backend refuses the op (op): "
        "no `nn.relu` here"
    )


def test_ten_ops_that_are_not_taken_are_named_and_the_rest_counted(fake_backend: type[FakeBackend]) -> None:
    lines = "".join(f"    v{i} = R.tanh(x)\n" for i in range(13))
    module = R.parse(f"def main(x: R.Tensor((4,))):\n{lines}    return v0\n")
    with pytest.raises(PartitionError) as caught:
        partition(module, [fake_backend("aone", ["exp"])], partition_options=PartitionOptions(force={"v*": "aone"}))
    shown = str(caught.value).splitlines()
    assert [line.partition(" of ")[0] for line in shown[:-1]] == [f"op `tanh` at `v{i}`" for i in range(10)]
    assert shown[-1] == "and 3 more ops"


def test_an_op_that_is_claimed_by_hand_is_not_forced_elsewhere(two: list[FakeBackend]) -> None:
    parted = partition(R.parse(CHAIN), two)
    with pytest.raises(PartitionError) as caught:
        partition(parted, two, partition_options=PartitionOptions(force={"b": "btwo"}))
    problem = "is forced to `btwo`, but `aone` has already claimed the op"
    assert str(caught.value) == f"op `nn.relu` at `b` of function `main`: {problem}"


STOPPED = {
    "a": "a:a",
    "b": "a:a b:a",
    "main/c": "a:a b:a c:a",
}


@pytest.mark.parametrize("stop", STOPPED)
def test_what_depends_on_a_stop_stays_on_the_host(stop: str, offloaded: Callable[..., str]) -> None:
    log = PartitionLog()
    assert offloaded(CHAIN, stop_at=[stop], log=log) == STOPPED[stop]
    assert [(r.backend, r.rejection.code, r.rejection.text) for r in log.refusals("main", "d")] == [
        (name, "stopped", f"the op depends on `{stop[-1]}`, and the user stops offloading there")
        for name in ("aone", "btwo")
    ]


STOPPED_IN_CONTROL = {
    "a": "a:a",  # the `if` reads it, and so do all its ops; and those of the function that gets its result
    "y": "a:a q:a r:a v:a w:a",
    "q": "a:a q:a v:a w:a",  # what the `if` gives may come from it
    "v": "a:a q:a r:a v:a w:a",
    "s": "a:a q:a r:a s:a v:a w:a",
    "z": "a:a q:a r:a s:a t:a v:a w:a",
}


@pytest.mark.parametrize("stop", STOPPED_IN_CONTROL)
def test_stops_reach_through_control_flow_and_calls(stop: str, offloaded: Callable[..., str]) -> None:
    assert offloaded(CONTROL, stop_at=[stop]) == STOPPED_IN_CONTROL[stop]


def test_in_a_loop_what_stands_before_the_stop_may_be_offloaded(offloaded: Callable[..., str]) -> None:
    module = """
def main(n: R.Tensor((), "int64"), go: R.Tensor((), "bool"), x: R.Tensor((4,))):
    def body(i: R.Tensor((), "int64"), more: R.Tensor((4,))):
        a = R.tanh(more)
        b = R.exp(a)
        c = R.tanh(b)
        stay = R.less(i, i)
        return stay, c
    y = R.loop(n, go, x, regions=[body])
    z = R.tanh(y)
    return z
"""
    assert offloaded(module, stop_at=["b"]) == "a:a b:a stay:a"


def test_force_goes_before_stop_and_allow(offloaded: Callable[..., str]) -> None:
    options = {"force": {"d": "btwo"}, "stop_at": ["a"], "allow": {"btwo": ["exp"]}}
    assert offloaded(CHAIN, **options) == "a:a d:b"


def test_allowed_ops(offloaded: Callable[..., str]) -> None:
    log = PartitionLog()
    allow = {"aone": ["nn.*", "exp"], "btwo": []}
    assert offloaded(CHAIN, allow=allow, log=log) == "b:a c:a"
    assert [(r.rejection.code, r.rejection.text) for r in log.refusals("main", "a")] == [
        ("not-allowed", "the user does not allow `tanh` for this backend")
    ] * 2


WRONG: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "unknown backend": (
        {"force": {"a": "atwo"}},
        "force `a`: no backend `atwo` takes part; expected aone, btwo, host. Did you mean 'btwo'?",
    ),
    "unknown name": (
        {"force": {"main/bb": "host"}},
        "force `main/bb`: matches no op. Did you mean 'main/b' or 'main/d' or 'main/c'?",
    ),
    "unknown stop": ({"stop_at": ["nothing"]}, "stop_at `nothing`: matches no op. `byoc explain` prints the names."),
    "empty glob": ({"force": {"conv_*": "host"}}, "force `conv_*`: matches no op. `byoc explain` prints the names."),
    "contradiction": (
        {"force": {"[ab]": "aone", "[bc]": "btwo"}},
        (
            "force `[bc]`: forces `b` to `btwo`, but `[ab]` forces the op to `aone`. "
            "An exact name takes precedence over a glob."
        ),
    ),
    "contradiction of exact names": (
        {"force": {"b": "aone", "main/b": "host"}},
        "force `main/b`: forces `b` to `host`, but `b` forces the op to `aone`",
    ),
    "unknown op": (
        {"allow": {"aone": ["nn.conv2"]}},
        "allow `aone`: no op matches `nn.conv2`. Did you mean 'nn.conv2d' or 'nn.conv3d' or 'nn.conv1d'?",
    ),
    "host": ({"allow": {"host": ["add"]}}, "allow `host`: the host takes all remaining ops and cannot be restricted"),
    "unknown backend to allow": (
        {"allow": {"btwoo": ["add"]}},
        "allow `btwoo`: no backend `btwoo` takes part; expected aone, btwo. Did you mean 'btwo'?",
    ),
}


@pytest.mark.parametrize("label", WRONG)
def test_constraints_that_cannot_be_met(label: str, two: list[FakeBackend]) -> None:
    options, text = WRONG[label]
    with pytest.raises(OptionsError) as caught:
        partition(R.parse(CHAIN), two, partition_options=PartitionOptions(**options))
    assert str(caught.value) == text


def test_a_call_is_placed_by_the_ops_of_its_function(two: list[FakeBackend]) -> None:
    with pytest.raises(OptionsError) as caught:
        partition(R.parse(CONTROL), two, partition_options=PartitionOptions(force={"z": "aone"}))
    assert str(caught.value) == (
        "force `z`: names only calls, and no backend takes calls. Name ops of the called function: `function/name`."
    )


MALFORMED: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "negative": ({"min_ops": -1}, "min_ops: is not a valid limit; got -1, expected an integer of 0 or more"),
    "fraction": ({"min_flops": 0.5}, "min_flops: is not a valid limit; got 0.5, expected an integer of 0 or more"),
    "no truth": ({"sideways": "yes"}, "sideways: is not a bool; got 'yes'"),
    "truth": ({"min_bytes": True}, "min_bytes: is not a valid limit; got True, expected an integer of 0 or more"),
    "one name": ({"stop_at": "conv"}, "stop_at: is a single string; got 'conv', expected ['conv']"),
    "names": ({"stop_at": [1]}, "stop_at: is not a list of names; got [1]"),
    "one glob": ({"allow": {"a": "add"}}, "allow `a`: is a single string; got 'add', expected ['add']"),
    "pairs": (
        {"force": [("a", "b")]},
        "force: is not a mapping with names as keys; got [('a', 'b')], expected a mapping such as {'conv_1': 'host'}",
    ),
    "a number": ({"force": {"a": 1}}, "force `a`: is not the name of a backend; got 1"),
    "a list": (
        {"allow": ["a"]},
        "allow: is not a mapping with names as keys; got ['a'], expected a mapping such as {'mynpu': ['nn.*']}",
    ),
}


@pytest.mark.parametrize("label", MALFORMED)
def test_malformed_options(label: str) -> None:
    options, text = MALFORMED[label]
    with pytest.raises(OptionsError) as caught:
        PartitionOptions(**options)
    assert str(caught.value) == text


def test_a_dict_is_no_partition_options(two: list[FakeBackend]) -> None:
    with pytest.raises(OptionsError) as caught:
        partition(R.parse(CHAIN), two, partition_options={"min_ops": 3})  # type: ignore[arg-type]
    assert str(caught.value) == (
        "partition_options: is not a PartitionOptions object; got dict. "
        "Create the options, for example `PartitionOptions(min_ops=3)`."
    )
