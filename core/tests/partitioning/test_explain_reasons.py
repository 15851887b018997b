"""The vocabulary of reasons: every code used by core is in the table, and every code of the table is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import pytest
from byoc_core import script as R
from byoc_core.backend import BackendInfo, CodegenResult, Estimate, Status, Support
from byoc_core.backend.hooks import hookimpl
from byoc_core.ir import Binding, Function, IRModule, OpDef, OperandSpec, Var, tensor
from byoc_core.partitioning import REASONS, ByCost, PartitionLog, PartitionOptions, PartitionRequest, partition
from byoc_core.partitioning.policies import PlacedOps
from byoc_core.pattern import CompositePattern, Rejection, is_op, wildcard

from core.tests.conftest import FakeBackend

CORE = Path(byoc_core.__file__).parent


def rejection_codes(tree: ast.AST) -> Iterator[str]:
    """Yield the code of every ``Rejection(...)`` in a piece of source; ``?`` if not a literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name == "Rejection":
                code = node.args[0] if node.args else next(k.value for k in node.keywords if k.arg == "code")
                yield code.value if isinstance(code, ast.Constant) and isinstance(code.value, str) else "?"


def test_every_rejection_of_core_has_a_code_of_the_table() -> None:
    found = {
        (str(path.relative_to(CORE)), code)
        for path in sorted(CORE.rglob("*.py"))
        for code in rejection_codes(ast.parse(path.read_text("utf-8")))
    }
    assert len(found) > 10
    assert {(path, code) for path, code in found if code not in REASONS} == set()


def test_the_scan_sees_codes() -> None:
    source = "Rejection('a', 'x')\nverdict.Rejection(code='b', text='y')\nRejection(made, 'z')\nOther('c')"
    assert list(rejection_codes(ast.parse(source))) == ["a", "b", "?"]


def test_codes_are_lower_case_with_hyphens_and_meanings_are_clauses() -> None:
    for code, meaning in REASONS.items():
        assert code == code.lower().replace("_", "-").replace(" ", "-")
        assert meaning[0].islower()
        assert not meaning.endswith(".")


def test_the_documentation_lists_every_code_with_its_meaning() -> None:
    page = (Path(__file__).parents[3] / "docs" / "explain.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", page.split("## The codes")[1], re.MULTILINE)
    assert dict(rows) == dict(REASONS)
    assert len(rows) == len(REASONS)


# Each case gives the codes that come up where ops, or regions, are refused.

Fake = Callable[..., Any]
TANH = R.parse("def main(x: R.Tensor((4,))):\n    y = R.tanh(x)\n    return y")
DYNAMIC = R.parse('def main(x: R.Tensor(("n",))):\n    y = R.tanh(x)\n    return y')
DIAMOND = """
def main(x: R.Tensor((4,))):
    a = R.nn.relu(x)
    b = {middle}
    c = R.add(a, b)
    return c
"""
UNRANKED = R.parse('def main(x: R.Tensor(None, "float32")):\n    y = R.tanh(x)\n    return y')
NONZERO = """
def main(x: R.Tensor((4,))):
    a = R.nonzero(x, out_types=[R.Tensor((1, "k"), "int64")])
    b = R.negative(a)
    return b
"""
FLAT = R.parse("def main(x: R.Tensor((4, 2))):\n    y = R.reshape(x, shape=(8,))\n    return y")
PATTERN = CompositePattern("aone.relu_tanh", is_op("tanh")(is_op("nn.relu")(wildcard())))
PAIR = R.parse("def main(x: R.Tensor((4,))):\n    a = R.nn.relu(x)\n    b = R.tanh(a)\n    return b")
LEAK = R.parse("def main(x: R.Tensor((4,))):\n    a = R.nn.relu(x)\n    b = R.tanh(a)\n    return a, b")
X = Var("x", tensor((4,)))


class PatternsOnly:
    """A backend without a rule for single ops, accepting every size."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo("aone", dynamic_shapes=True, data_dependent_sizes=True)

    @hookimpl
    def byoc_patterns(self) -> list[CompositePattern]:
        return [PATTERN]

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function]) -> CodegenResult:
        return CodegenResult(None, rejections={})


def codes(module: IRModule, *backends: object, **options: Any) -> set[str]:
    """Return the codes in a module's report."""
    data = byoc_core.explain(module, backends, **options).report_data
    reasons = [reason for row in data["ops"] for reason in row.get("reasons", ())]
    return {item["code"] for item in (*data["ops"], *reasons, *data["borders"])}


def host_codes(binding: Binding) -> set[str]:
    """Return the host's codes for refusing the only op of a module."""
    function = Function("main", tuple(o for o in binding.operands if isinstance(o, Var)), (binding,), binding.results)
    log = PartitionLog()
    partition(IRModule({"main": function}), ["host"], log=log)
    return {refusal.rejection.code for refusal in log.refusals("main", binding.results[0].name)}


def own_op(name: str = "mine", **fields: Any) -> Binding:
    """Return a binding of an op unknown to core."""
    op = OpDef(name, (OperandSpec("x"),), lambda context: (context.operands[0],), **fields)
    return Binding((Var("y", X.type),), op, (X,), op.normalise_attrs({}))


def fails(binding: Binding) -> Support | Rejection:
    raise ValueError(binding.op.name)


def nothing(module: IRModule, request: PartitionRequest, /) -> IRModule:
    """A policy without claims."""
    return module


def region_and_mate(fake: Fake) -> set[str]:
    first = fake("aone", None, rejects={"*": Rejection("too-large", "does not fit")})
    return codes(PAIR, first, fake("btwo", ["tanh"]))


def handed_over(fake: Fake) -> set[str]:
    first = fake("aone", ["nn.relu"], rejects={"*": Rejection("too-large", "does not fit")})
    return codes(PAIR, first, fake("btwo", None))


def search_limit(fake: Fake) -> set[str]:
    """The path between two regions passes more ops than the limit of a search."""
    steps = "\n".join(f"    t{i + 1} = R.exp(t{i})" for i in range(5000))
    module = R.parse(
        "def main(x: R.Tensor((4,))):\n    a = R.nn.relu(x)\n    t0 = R.exp(a)\n"
        f"{steps}\n    c = R.add(a, t5000)\n    return c"
    )
    return codes(module, fake("aone", ["nn.relu", "add"]))


def constrained(fake: Fake, **constraints: Any) -> set[str]:
    return codes(TANH, fake("aone", None), partition_options=PartitionOptions(**constraints))


CASES: dict[str, Callable[[Fake], set[str]]] = {
    "impure": lambda _: host_codes(own_op(kernel=lambda x: x, traits=frozenset())),
    "nondeterministic": lambda fake: codes(
        R.parse("def main():\n    s = R.random.seed()\n    return s"), fake("aone", None)
    ),
    "unknown-rank": lambda fake: codes(UNRANKED, fake("aone", None)),
    "data-dependent-size": lambda fake: codes(R.parse(NONZERO), fake("aone", None)),
    "dynamic-shape": lambda fake: codes(DYNAMIC, fake("aone", None, dynamic_shapes=False), specialize=False),
    "host-only": lambda _: codes(TANH),
    "not-claimed": lambda fake: codes(TANH, fake("aone", None), policy=nothing),
    "no-rule": lambda _: codes(TANH, PatternsOnly()),
    "near-miss": lambda fake: codes(TANH, fake("aone", [], [PATTERN])),
    "used-elsewhere": lambda fake: codes(LEAK, fake("aone", [], [PATTERN])),
    "would-close-cycle": lambda fake: codes(
        R.parse(DIAMOND.format(middle="R.tanh(a)")), fake("aone", ["nn.relu", "add"])
    ),
    "name": lambda _: host_codes(own_op("tanh", kernel=lambda x: x)),
    "hook-failed": lambda fake: codes(TANH, fake("aone", None, supports=fails)),
    "same-region": region_and_mate,
    "view": lambda fake: codes(FLAT, fake("aone", None)),
    "barrier": lambda fake: codes(
        R.parse(DIAMOND.format(middle='R.call_packed("log", (a,), out_types=[R.Tensor((4,))])')), fake("aone", None)
    ),
    "other-device": lambda fake: codes(PAIR, fake("aone", None), partition_options=PartitionOptions(devices={"a": 1})),
    "handed-over": handed_over,
    "search-limit": search_limit,
    "structural": lambda _: host_codes(own_op(kernel=None)),
    "unavailable": lambda fake: codes(TANH, fake("aone", None, status=Status(False, "npucc is missing", ""))),
    "lost": lambda fake: codes(PAIR, fake("aone", [], [PATTERN, replace(PATTERN, name="aone.again")])),
    "forced": lambda fake: constrained(fake, force={"y": "host"}),
    "stopped": lambda fake: codes(PAIR, fake("aone", None), partition_options=PartitionOptions(stop_at=["a"])),
    "not-allowed": lambda fake: constrained(fake, allow={"aone": ["add"]}),
    "too-small": lambda fake: constrained(fake, min_ops=2),
    "placed": lambda fake: codes(TANH, fake("aone", None), policy=PlacedOps({"main/y": "host"})),
    "costs-more": lambda fake: codes(
        TANH, fake("aone", None, estimate=lambda function: Estimate(seconds=9.0)), policy=ByCost()
    ),
}
"""A case for each code of core."""

KIT = {"attribute", "object", "rank", "symbol", "engine"}
"""Codes of the graph kit, produced in ``core/tests/host/test_host_backend.py``."""


def test_every_code_has_a_case() -> None:
    assert CASES.keys() | KIT == REASONS.keys()
    assert not CASES.keys() & KIT


@pytest.mark.filterwarnings("ignore:backend `aone` cannot compile here")
@pytest.mark.filterwarnings("ignore:backend `aone`, hook `byoc_supports`. raised")
@pytest.mark.parametrize("code", CASES)
def test_every_code_is_given(code: str, fake_backend: type[FakeBackend]) -> None:
    assert code in CASES[code](fake_backend)
