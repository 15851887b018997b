"""A policy may only make permitted claims: otherwise the error names the policy and the op."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from byoc_core import script as R
from byoc_core.backend.hooks import hookimpl
from byoc_core.errors import HookError, InternalError, OptionsError, PartitionError
from byoc_core.ir import COMPOSITE, Binding, Function, IRModule, Var
from byoc_core.partitioning import (
    ByCost,
    PartitionLog,
    PartitionOptions,
    PartitionRequest,
    partition,
)
from byoc_core.partitioning.claiming import claim_faults
from byoc_core.partitioning.merging import merge

from core.tests.conftest import FakeBackend, RunCompiled
from core.tests.partitioning.conftest import Placement

MODULE = """
def main(x: R.Tensor((4,)), n: R.Tensor(("n",))):
    a = R.tanh(x)
    b = R.exp(a)
    e = R.call_packed("log", (b,), out_types=[R.Tensor((4,))])
    f = R.call_packed("log", (x,), out_types=[R.Tensor((4,))])
    m = R.tanh(n)
    k = R.nonzero(b, out_types=[R.Tensor((1, "k"), "int64")])
    s = R.sum(k)
    return b, e, f, m, s
"""

partition_module = importlib.import_module("byoc_core.partitioning.partition")  # `partition` is the function

Change = Callable[[Sequence[Binding]], Sequence[Binding]]


def change_main(module: IRModule, change: Change) -> IRModule:
    main = module["main"]
    return module.with_function(replace(main, bindings=tuple(change(main.bindings))))


def claim(position: int, backend: str = "aone") -> Change:
    return lambda b: [*b[:position], replace(b[position], codegen=backend), *b[position + 1 :]]


def composite(name: str, backend: str, *positions: int) -> Change:
    """Put neighbours into a composite with the last op's results."""

    def change(bindings: Sequence[Binding]) -> Sequence[Binding]:
        parts = [bindings[position] for position in positions]
        (x,) = parts[0].operands
        param = Var("p", x.type)
        inner = [replace(part, results=tuple(Var(r.name, r.type) for r in part.results)) for part in parts]
        values = [param, *(part.results[0] for part in inner)]
        inner = [replace(part, operands=(values[i],)) for i, part in enumerate(inner)]
        body = Function("body", (param,), tuple(inner), (values[-1],))
        attrs = COMPOSITE.normalise_attrs({"name": name})
        merged = Binding(parts[-1].results, COMPOSITE, (x,), attrs, (body,), codegen=backend)
        return [b for i, b in enumerate(bindings) if i < positions[0]] + [merged, *bindings[positions[-1] + 1 :]]

    return change


def add_function(module: IRModule) -> IRModule:
    return module.with_function(replace(module["main"], name="other"))


def lose_an_op(bindings: Sequence[Binding]) -> Sequence[Binding]:
    return bindings[:-1]


def swap(bindings: Sequence[Binding]) -> Sequence[Binding]:
    return [*bindings[:2], bindings[3], bindings[2], *bindings[4:]]


def rewire(bindings: Sequence[Binding]) -> Sequence[Binding]:
    return [*bindings[:2], replace(bindings[2], operands=bindings[3].operands), *bindings[3:]]


def rename(bindings: Sequence[Binding]) -> Sequence[Binding]:
    fresh = Var("z", bindings[1].result.type)
    changed = [
        replace(b, operands=tuple(fresh if o is bindings[1].result else o for o in b.operands)) for b in bindings
    ]
    return [changed[0], replace(changed[1], results=(fresh,)), *changed[2:]]


COMPOSITE_OF_K = "claims op `composite` at `s` for `aone` as composite"
REFUSED = "claims op `tanh` at `m` for `btwo`, but the claim is forbidden"

FAULTS: Mapping[str, tuple[Callable[[IRModule], IRModule], str]] = {
    "an op lost": (
        lambda m: change_main(m, lambda b: [*b[:4], replace(b[4], results=(Var("q", b[4].result.type),)), *b[5:]]),
        "lost op `tanh` at `m` of function `main`",
    ),
    "impure ops reordered": (
        lambda m: change_main(m, swap),
        "changed the results of function `main`",
    ),
    "operands changed": (
        lambda m: change_main(m, rewire),
        "changed the results of function `main`",
    ),
    "a function added": (add_function, "added function `other`"),
    "an op added": (
        lambda m: change_main(m, lambda b: [*b, replace(b[0], results=(Var("z", b[0].result.type),))]),
        "added op `tanh` at `z` of function `main`",
    ),
    "another backend": (
        lambda m: change_main(m, claim(0, "cthree")),
        "claims op `tanh` at `a` for `cthree`, but only these backends may claim: aone, btwo",
    ),
    "an impure op": (
        lambda m: change_main(m, claim(2)),
        "claims op `call_packed` at `e` for `aone`, but no backend may claim calls and control flow",
    ),
    "what the backend cannot take": (
        lambda m: change_main(m, claim(4, "btwo")),
        f"{REFUSED} (dynamic-shape): backend `btwo` takes static shapes only",
    ),
    "what the user forbids": (
        lambda m: change_main(m, claim(0, "btwo")),
        "claims op `tanh` at `a` for `btwo`, but the claim is forbidden (forced): the user forces the op to `aone`",
    ),
    "what the user forbids in a composite": (
        lambda m: change_main(m, composite("btwo.pair", "btwo", 0, 1)),
        "claims op `tanh` at `a` for `btwo`, but the claim is forbidden (forced): the user forces the op to `aone`",
    ),
    "a composite whose sizes the data tells": (
        lambda m: change_main(m, composite("aone.sum", "aone", 5, 6)),
        f"{COMPOSITE_OF_K} `aone.sum`, but the composite contains an op with data-dependent sizes",
    ),
    "a composite of another": (
        lambda m: change_main(m, composite("btwo.pair", "aone", 0, 1)),
        "claims op `composite` at `b` for `aone` as composite `btwo.pair`, but the name must start with `aone.`",
    ),
}


@pytest.fixture
def two(fake_backend: type[FakeBackend]) -> list[FakeBackend]:
    return [fake_backend("aone", None), fake_backend("btwo", None, dynamic_shapes=False)]


@pytest.mark.parametrize("label", FAULTS)
def test_a_policy_that_does_more_than_it_may(label: str, two: list[FakeBackend]) -> None:
    change, problem = FAULTS[label]

    def meddling(module: IRModule, request: PartitionRequest, /) -> IRModule:
        return change(module)

    options = PartitionOptions(force={"a": "aone"})
    with pytest.raises(PartitionError) as caught:
        partition(R.parse(MODULE), two, policy=meddling, partition_options=options)
    assert (caught.value.where, caught.value.problem) == ("policy `meddling`", problem)


def test_a_policy_that_gives_an_invalid_module_is_named(two: list[FakeBackend]) -> None:
    """Names and claims are right; only the order is wrong."""

    def backwards(module: IRModule, request: PartitionRequest, /) -> IRModule:
        return change_main(module, lambda b: [*claim(0)([b[1], b[0]]), *b[2:]])

    with pytest.raises(PartitionError) as caught:
        partition(R.parse(MODULE), two, policy=backwards)
    assert caught.value.where == "policy `backwards`"
    assert caught.value.problem.startswith("made an invalid module: ")


@pytest.mark.parametrize("limits", [PartitionOptions(), PartitionOptions(min_ops=2)], ids=["no limits", "limits"])
def test_a_fault_of_the_merger_is_not_the_policys(
    limits: PartitionOptions, two: list[FakeBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = merge._outputs
    monkeypatch.setattr(merge, "_outputs", lambda members, readers: outputs(members, readers)[::-1])
    module = R.parse("def main(x: R.Tensor((4,))):\n    a = R.tanh(x)\n    b = R.exp(a)\n    return a, b\n")
    with pytest.raises(InternalError) as caught:
        partition(module, two[:1], partition_options=limits)
    assert caught.value.where == "region `aone_main_0`"
    assert caught.value.problem == "does not have the outputs in the order of the producing ops"


def test_a_fault_of_claims_in_merging_is_found(two: list[FakeBackend], monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is the same, but the region has another backend."""

    def swapped(module: IRModule, *arguments: Any) -> IRModule:
        merged = merge_claims(module, *arguments)
        region = merged["aone_main_0"]
        return merged.with_function(replace(region, attrs={**region.attrs, "Codegen": "btwo"}))

    merge_claims = merge.merge_claims
    monkeypatch.setattr(merge, "merge_claims", swapped)
    monkeypatch.setattr(partition_module, "merge_claims", swapped)
    with pytest.raises(InternalError) as caught:
        partition(R.parse(MODULE), two)
    assert caught.value.problem == "changed the backend of an op, or the impure ops around an op, of function `main`"


def test_a_lawful_partition_is_compared_once(two: list[FakeBackend], monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    for owner in (merge, claim_faults):
        monkeypatch.setattr(owner, "check_partition", lambda before, after: compared.append("once"))
    partition(R.parse(MODULE), two)
    assert compared == ["once"]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("cost", "policy: is not a policy; got 'cost', expected a callable, such as ByCost()"),
        (ByCost, "policy: is a class; got ByCost, expected an instance: ByCost()"),
    ],
)
def test_what_is_no_policy(policy: Any, text: str, two: list[FakeBackend]) -> None:
    with pytest.raises(OptionsError) as caught:
        partition(R.parse(MODULE), two, policy=policy)
    assert str(caught.value) == text


def test_backends_are_no_string() -> None:
    with pytest.raises(OptionsError) as caught:
        partition(R.parse(MODULE), "ccompiler")
    assert str(caught.value) == "backends: is a single string; got 'ccompiler', expected ['ccompiler']"


def test_a_model_that_is_no_module() -> None:
    with pytest.raises(OptionsError) as caught:
        partition("model.onnx", [])  # type: ignore[arg-type]
    assert str(caught.value) == (
        "module: is not an IRModule; got str. Import a model with `byoc_core.from_onnx`, "
        "or parse script with `byoc_core.parse`."
    )


def test_a_policy_that_gives_no_module(two: list[FakeBackend]) -> None:
    class Nothing:
        def __call__(self, module: IRModule, request: PartitionRequest, /) -> Any:
            return None

    with pytest.raises(PartitionError) as caught:
        partition(R.parse(MODULE), two, policy=Nothing())
    assert str(caught.value) == "policy `Nothing`: returned no module; got NoneType"


def test_a_policy_that_drops_an_older_claim(two: list[FakeBackend]) -> None:
    def dropping(module: IRModule, request: PartitionRequest, /) -> IRModule:
        return change_main(module, lambda bindings: [replace(b, codegen=None) for b in bindings])

    with pytest.raises(PartitionError) as caught:
        partition(change_main(R.parse(MODULE), claim(1)), two, policy=dropping)
    assert str(caught.value) == "policy `dropping`: dropped the claim of `aone` on `b`"


def test_a_policy_that_claims_by_hand_within_its_rights(two: list[FakeBackend], placement: type[Placement]) -> None:
    def careful(module: IRModule, request: PartitionRequest, /) -> IRModule:
        claim_filter = request.claim_filter(request.backends[1])
        main = module["main"]
        mine = [replace(b, codegen="btwo") if claim_filter("main", b) is None else b for b in main.bindings]
        return module.with_function(replace(main, bindings=tuple(mine)))

    options = PartitionOptions(force={"a": "host"})
    parted = partition(R.parse(MODULE), two, policy=careful, partition_options=options)
    assert placement(parted).region_of == {"b": "btwo_main_0"}


class OwnBackend(FakeBackend):
    """A backend with a separate algorithm for claims."""

    def __init__(self, change: Callable[[IRModule], Any], **more: Any) -> None:
        super().__init__("aone", None, **more)
        self._change = change

    @hookimpl
    def byoc_partition(self, module: IRModule) -> Any:
        return self._change(module)


def test_a_backend_claims_by_its_own_algorithm(placement: type[Placement], two: list[FakeBackend]) -> None:
    log = PartitionLog()
    backend = OwnBackend(lambda m: change_main(m, composite("aone.pair", "aone", 0, 1)))
    parted = partition(R.parse(MODULE), [backend, two[1]], log=log)
    where = placement(parted)
    assert where.region_of == {"a": "aone_main_0", "b": "aone_main_0"}
    assert parted["aone_main_0"].bindings[0].attrs["name"] == "aone.pair"
    assert [refusal.rejection.text for refusal in log.refusals("main", "m")] == [
        "the backend's own partition does not claim the op",
        "backend `btwo` takes static shapes only",
    ]


def test_a_composite_of_its_own_with_an_op_that_it_may_not_have_is_dissolved(placement: type[Placement]) -> None:
    log = PartitionLog()
    backend = OwnBackend(lambda m: change_main(change_main(m, claim(4)), composite("aone.pair", "aone", 0, 1)))
    options = PartitionOptions(force={"a": "host"})
    parted = partition(R.parse(MODULE), [backend], log=log, partition_options=options)
    assert placement(parted).region_of == {"m": "aone_main_0"}
    assert [binding.op.name for binding in parted["main"].bindings][:2] == ["tanh", "exp"]
    assert [(r.pattern, r.rejection.code) for r in log.refusals("main", "b")] == [
        ("aone.pair", "forced"),
        ("", "not-claimed"),
    ]
    assert [(r.pattern, r.rejection.code) for r in log.refusals("main", "a")] == [("", "forced")]


def test_its_claims_on_what_it_says_it_cannot_take_are_dropped(placement: type[Placement]) -> None:
    backend = OwnBackend(lambda m: change_main(change_main(m, claim(4)), claim(0)), dynamic_shapes=False)
    log = PartitionLog()
    parted = partition(R.parse(MODULE), [backend], log=log)
    assert placement(parted).region_of == {"a": "aone_main_0"}
    assert [refusal.rejection.code for refusal in log.refusals("main", "m")] == ["dynamic-shape"]


def test_its_regions_are_pruned_like_others(placement: type[Placement], two: list[FakeBackend]) -> None:
    backend = OwnBackend(lambda m: change_main(m, claim(0)) if m["main"].bindings[0].op.name == "tanh" else m)
    options = PartitionOptions(min_ops=2)
    parted = partition(R.parse(MODULE), [backend, two[1]], partition_options=options)
    assert set(placement(parted).region_of) == {"a", "b"}
    assert set(placement(parted).backend_of.values()) == {"btwo"}


def test_its_claims_are_compiled_and_run(run_compiled: RunCompiled) -> None:
    import numpy as np
    from byoc_core.partitioning import RunCodegen

    module = R.parse("def main(x: R.Tensor((4,))):\n    a = R.tanh(x)\n    b = R.exp(a)\n    return b\n")
    backend = OwnBackend(lambda m: change_main(m, composite("aone.pair", "aone", 0, 1)))
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    (found,) = run_compiled(RunCodegen(backends=[backend])(partition(module, [backend])), "main", [x])
    assert len(backend.compiled) == 1
    np.testing.assert_array_equal(found, np.exp(np.tanh(x)))


HOOK_FAULTS: Mapping[str, tuple[Callable[[IRModule], Any], str]] = {
    "another backend": (
        lambda m: change_main(m, claim(0, "btwo")),
        "claims op `tanh` at `a` for `btwo`, but only these backends may claim: aone",
    ),
    "an impure op": (
        lambda m: change_main(m, claim(2)),
        "claims op `call_packed` at `e` for `aone`, but no backend may claim calls and control flow",
    ),
    "an impure op in a composite": (
        lambda m: change_main(m, composite("aone.log", "aone", 2)),
        "claims op `call_packed` at `e` for `aone`, but the claim is forbidden (impure): `call_packed` has effects",
    ),
    "an op renamed": (lambda m: change_main(m, rename), "lost op `exp` at `b` of function `main`"),
    "order": (lambda m: change_main(m, swap), "changed the results of function `main`"),
    "an op lost": (lambda m: change_main(m, lose_an_op), "lost op `sum` at `s` of function `main`"),
}


@pytest.mark.parametrize("label", HOOK_FAULTS)
def test_a_backend_whose_partition_does_more_than_claim(label: str, two: list[FakeBackend]) -> None:
    change, problem = HOOK_FAULTS[label]
    with pytest.raises(HookError) as caught:
        partition(R.parse(MODULE), [OwnBackend(change), two[1]])
    assert caught.value.where == "plugin `aone`, hook `byoc_partition`"
    assert caught.value.problem == problem


def test_a_partition_that_gives_no_module() -> None:
    with pytest.raises(HookError) as caught:
        partition(R.parse(MODULE), [OwnBackend(lambda m: None)])
    assert caught.value.problem == "returned a value of the wrong type"
