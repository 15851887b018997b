"""Every finding of the lint, each on a backend with a single fault; and a good backend without findings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.backend import Status, Support
from byoc_core.backend.hooks import LoweringBuilder, hookimpl
from byoc_core.errors import BackendNotFoundError
from byoc_core.ir import Binding, Function, OpDef, TensorType, no_flops
from byoc_core.lint import CODES, Finding, lint_backend
from byoc_core.lint.shadowing import have_equal_form
from byoc_core.native.toolchain import Toolchain
from byoc_core.ops import EXACT, default_ops, example
from byoc_core.pattern import CompositePattern, Match, Pattern, Rejection, any_number, is_const, is_op, wildcard
from pydantic import BaseModel

from core.tests.conftest import FakeBackend
from core.tests.lowered_toys import LoweringToy

Fake = Callable[..., Any]


def _only_float32(match: Match) -> Rejection | None:
    for binding in match.bindings:
        for value in (*binding.operands, *binding.results):
            if not isinstance(value.type, TensorType) or value.type.dtype != "float32":
                return Rejection("dtype", "only float32")
    return None


def _takes_float32(binding: Binding) -> Support | Rejection:
    if binding.op.name != "add" or any(value.type != binding.result.type for value in binding.operands):
        return Rejection("op", "only add of equal types")
    is_float = isinstance(binding.result.type, TensorType) and binding.result.type.dtype == "float32"
    return Support() if is_float else Rejection("dtype", "only float32")


def _conv(weight: Pattern | None = None) -> Pattern:
    return is_op("nn.conv2d")(wildcard(), weight or wildcard())


def _relu() -> Pattern:
    return is_op("nn.relu")(_conv())


def _named(
    pattern: Pattern, check: Any = _only_float32, name: str = "fake.it", **options: Any
) -> list[CompositePattern]:
    return [CompositePattern(name, pattern, check, **options)]


class _Options(BaseModel):
    level: int


def _patterns(pattern: Pattern, check: Any = _only_float32) -> Callable[[Fake], Any]:
    return lambda fake: fake(patterns=_named(pattern, check), supports=_takes_float32)


def _supports(supports: Callable[[Binding], Any], **options: Any) -> Callable[[Fake], Any]:
    return lambda fake: fake(supports=supports, **options)


def _with_hooks(**hooks: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a maker of backends with some hooks replaced."""

    def make(fake: Any) -> Any:
        changed = {name: hookimpl(hook) for name, hook in hooks.items()}
        return type("Changed", (fake,), changed)(supports=_takes_float32)

    return make


def _raise(*_: object) -> Any:
    raise ZeroDivisionError("division by zero")


def _alternating() -> Callable[[object], Rejection | None]:
    answers: Iterator[Rejection | None] = itertools.cycle([None, Rejection("mood", "not today")])
    return lambda _: next(answers)


def _alternating_support(binding: Binding) -> Support | Rejection:
    answer = next(_MOODS)
    return answer if binding.op.name == "exp" else _takes_float32(binding)


_MOODS: Iterator[Support | Rejection] = itertools.cycle([Support(), Rejection("mood", "not today")])


def _refuses_exp_as_new(binding: Binding) -> Support | Rejection:
    return Rejection.of_new_op("exp") if binding.op.name == "exp" else _takes_float32(binding)


def _sometimes_odd(binding: Binding) -> Any:
    return True if binding.op.name == "exp" else _takes_float32(binding)


def _sometimes_fails(binding: Binding) -> Any:
    return _raise() if binding.op.name == "exp" else _takes_float32(binding)


def _only_static(binding: Binding) -> Support | Rejection:
    if any(isinstance(value.type, TensorType) and value.type.symbols for value in binding.operands):
        return Rejection("dynamic-shape", "only known sizes")
    return _takes_float32(binding)


def _shadowing(check: Any) -> Callable[[Fake], Any]:
    first = _named(_conv(), check, "fake.conv", priority=1)
    return lambda fake: fake(patterns=[*first, *_named(_relu(), name="fake.conv_relu")], supports=_takes_float32)


def _give_add(self: object) -> Sequence[OpDef]:
    return [default_ops()["add"]]


def _give_op_without(fact: str) -> Callable[[object], Sequence[OpDef]]:
    """Return a hook declaring two ops: an op with all facts, and an op without a fact."""
    facts: dict[str, Any] = {
        "infer": lambda context: (TensorType((2, 3), "float32"),),
        "flops": no_flops,
        "kernel": lambda: np.zeros((2, 3), np.float32),
        "rounding": EXACT,
        "cases": lambda: [example()],
        "doc": "Return zeros.",
    }
    lacking = {name: value for name, value in facts.items() if name != fact}
    if fact == "rounding":
        lacking["flops"] = lambda context: context.elements()
    return lambda self: [OpDef("fake.zeros", (), **facts), OpDef("fake.lacking", (), **lacking)]


def _give_bad_dtype(self: object) -> Any:
    return _named(wildcard().has_dtype("float23"))


def _codegen_raises(self: object, functions: object, context: object) -> Any:
    return _raise()


_BAD: dict[str, Callable[[Fake], Any]] = {
    "bad-name": _supports(_takes_float32, name="My NPU"),
    "bad-info": _supports(
        _takes_float32,
        constants="inline",
        unit_roundoff={
            "int8": 0.5,
            "float16": 1e-3,
            "float32": 0,
            "float64": "1",
            "exp:float32": 1e-3,
            "exq:float32": 1e-3,
            "exp:int8": 0.5,
            "log:float32": 2,
        },
        min_region_flops=-1,
    ),
    "bad-options": _supports(_takes_float32, options=_Options),
    "bad-status": _supports(_takes_float32, status=Status(ok=False, reason="")),
    "bad-ops": _with_hooks(byoc_ops=_give_add),
    **{
        f"unstated-{fact}": _with_hooks(byoc_ops=_give_op_without(fact))
        for fact in ("kernel", "flops", "rounding", "cases", "doc")
    },
    "bad-patterns": _with_hooks(byoc_patterns=_give_bad_dtype),
    "foreign-name": lambda fake: fake(patterns=_named(_conv(), name="other.it"), supports=_takes_float32),
    "duplicate-name": lambda fake: fake(patterns=[*_named(_conv()), *_named(_relu())], supports=_takes_float32),
    "unknown-op": _patterns(is_op("nn.relu", "nn.gelo")(_conv())),
    "operand-count": _patterns(is_op("nn.relu", "nn.prelu")(_conv())),
    "bad-attribute": _patterns(is_op("nn.conv2d")(wildcard(), wildcard()).has_attr(padding=(1, 1)) | _relu()),
    "result-index": _patterns(_relu() | is_op("topk")(wildcard()).result(2)),
    "contradiction": _patterns(_relu() | is_op("nn.relu")(wildcard().has_rank(2).has_shape(None, 3, 4))),
    "condition-raises": _patterns(is_op("nn.relu")(wildcard().where(_raise))),
    "no-root": _patterns(wildcard()),
    "no-instance": _patterns(is_op("logical_not")(is_op("exp")(wildcard()))),
    "dead-alternative": _patterns(is_op("nn.relu", "logical_not")(_conv())),
    "never-asked": _patterns(is_op("nonzero")(wildcard()), None),
    "shadowed": _shadowing(None),
    "outranked": _shadowing(_only_float32),
    "check-raises": _patterns(_relu(), _raise),
    "unknown-capture": _patterns(_relu(), lambda match: match["weight"]),
    "check-type": _patterns(_relu(), lambda match: match.root.op.name == "nn.relu"),
    "check-changes": _patterns(_relu(), _alternating()),
    "check-always-rejects": _patterns(_relu(), lambda match: Rejection("dtype", "only float23")),
    "check-never-rejects": _patterns(is_op("add")(wildcard(), wildcard()), lambda match: None),
    "supports-raises": _supports(_sometimes_fails),
    "supports-type": _supports(_sometimes_odd),
    "supports-changes": _supports(_alternating_support),
    "new-op": _supports(_refuses_exp_as_new),
    "supports-every-dtype": lambda fake: fake(ops=["add", "reshape"]),
    "accepts-everything": lambda fake: fake(ops=None),
    "unused-capability": _supports(_only_static),
    "claims-nothing": lambda fake: fake(),
    "codegen-refuses": _supports(_takes_float32, rejects={"*": Rejection("mood", "not today")}),
    "codegen-raises": _with_hooks(byoc_codegen=_codegen_raises),
    "not-compiled": _supports(
        _takes_float32, status=Status(ok=False, reason="npucc is not on PATH", remedy="Install it.")
    ),
}
"""By code, the maker of a backend with a single fault."""


def _expected() -> dict[str, list[str]]:
    """Return all findings by code, a line each; a blank line ends the findings of a code."""
    blocks = Path(__file__).with_name("findings.txt").read_text("utf-8").strip().split("\n\n")
    return {block.splitlines()[0].removesuffix(":"): block.splitlines()[1:] for block in blocks}


def test_every_code_has_a_bad_backend() -> None:
    assert list(_BAD) == list(_expected()) == list(CODES)


@pytest.mark.parametrize("code", CODES)
def test_every_finding_is_made_of_a_backend_that_is_bad_in_this_way(code: str, fake_backend: type[FakeBackend]) -> None:
    compiles = code in ("codegen-refuses", "codegen-raises", "not-compiled")
    findings = lint_backend(_BAD[code](fake_backend), compile_claims=compiles)
    assert [str(finding) for finding in findings] == _expected()[code]
    assert code in [finding.code for finding in findings]


def test_nothing_is_found_of_a_good_backend(fake_backend: type[FakeBackend]) -> None:
    patterns = [*_named(_relu(), name="fake.conv_relu"), *_named(_conv(), name="fake.conv")]
    assert lint_backend(fake_backend(patterns=patterns, supports=_takes_float32), compile_claims=True) == ()


class _LowersAdditions(LoweringToy):
    """A backend taking additions of float32, without broadcast."""

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        return _takes_float32(binding)


def _add(function: Function, builder: LoweringBuilder) -> None:
    (out,) = builder.outputs
    builder.call_extern("toy_add", *map(builder.buffer, function.bindings[0].operands), out.written(), out.size)


LOWERINGS: dict[str, tuple[Callable[[Function, LoweringBuilder], object], list[tuple[str, str]]]] = {
    "good": (_add, []),
    "refuses": (lambda *_: Rejection("mood", "not today"), [("codegen-refuses", "(mood: not today)")]),
    "raises": (lambda *_: 1 % 0, [("codegen-raises", "raised ZeroDivisionError")]),
    "unlawful": (
        lambda _, builder: builder.call_extern("toy_fill", builder.outputs[0].part(0, 0).written(), 0, 1.0),
        [("codegen-raises", "is not written completely; got elements written so far: 0 to 0")],
    ),
    "undefined": (
        lambda _, builder: builder.call_extern("gone", builder.outputs[0].written()),
        [("codegen-raises", "calls `gone`, defined by no library")],
    ),
}


@pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")
@pytest.mark.parametrize("name", LOWERINGS)
def test_a_backend_without_codegen_is_judged_by_its_lowering(name: str) -> None:
    lower, expected = LOWERINGS[name]
    findings = lint_backend(_LowersAdditions(lower), compile_claims=True)
    assert [finding.code for finding in findings] == [code for code, _ in expected]
    for finding, (_, text) in zip(findings, expected, strict=True):
        assert text in finding.text


def test_p31_a_wrong_number_of_operands_and_a_shadowed_pattern_are_reported(fake_backend: type[FakeBackend]) -> None:
    patterns = [
        *_named(is_op("nn.conv2d")(wildcard(), wildcard(), wildcard()), name="fake.conv_bias"),
        *_named(_relu(), None, name="fake.conv_relu"),
        *_named(is_op("nn.relu")(_conv(is_const())), name="fake.conv_relu_again"),
    ]
    findings = lint_backend(fake_backend(patterns=patterns, supports=_takes_float32))
    assert [(finding.code, finding.pattern, finding.text) for finding in findings if finding.severity == "error"] == [
        ("operand-count", "fake.conv_bias", "takes 2 operands (x, weight), but the pattern has 3 operands"),
        ("shadowed", "fake.conv_relu_again", "`fake.conv_relu` wins in all 44 instances accepted by this pattern"),
    ]


def test_a_pattern_that_wins_once_is_not_shadowed(fake_backend: type[FakeBackend]) -> None:
    def only_static(match: Match) -> Rejection | None:
        symbols = {name for value in match.inputs for name in getattr(value.type, "symbols", ())}
        return Rejection("dynamic-shape", "only known sizes") if symbols else _only_float32(match)

    patterns = [*_named(_relu(), only_static, "fake.fast"), *_named(_relu(), name="fake.slow")]
    assert lint_backend(fake_backend(patterns=patterns, supports=_takes_float32)) == ()


def test_a_pattern_whose_matches_the_core_declines_is_never_asked(fake_backend: type[FakeBackend]) -> None:
    leaking = is_op("nn.relu")(_conv().used_by(is_op("tanh")))
    (finding,) = lint_backend(fake_backend(patterns=_named(leaking), supports=_takes_float32))
    assert str(finding) == (
        "error: pattern `fake.it`: the core rejects every match (used-elsewhere): "
        "values inside the match are read outside: `v0_0` [never-asked]"
    )
    kept = _named(leaking, leaked="return")
    assert lint_backend(fake_backend(patterns=kept, supports=_takes_float32)) == ()


def test_equal_patterns_that_nothing_fits_shadow_each_other(fake_backend: type[FakeBackend]) -> None:
    never = [is_op("nn.relu")(is_op("logical_not")(wildcard()), wildcard()) for _ in range(2)]
    patterns = [*_named(never[0], None, "fake.first"), *_named(never[1], name="fake.second")]
    findings = lint_backend(fake_backend(patterns=patterns, supports=_takes_float32))
    assert [(finding.code, finding.pattern) for finding in findings] == [
        ("operand-count", "fake.first"),
        ("shadowed", "fake.second"),
        ("operand-count", "fake.second"),
    ]


_X, _Y = wildcard(), wildcard()


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (_conv(), _conv(), True),
        (_conv().named("a"), _conv().named("b"), True),
        (_conv(is_const()), _conv(), False),
        (_conv().has_rank(4), _conv().has_rank(4), True),
        (_conv().has_rank(4), _conv().has_rank(3), False),
        (is_op("add")(_X, _X), is_op("add")(_Y, _Y), True),
        (is_op("add")(_X, _X), is_op("add")(_X, _Y), False),
        (is_op("add")(_X, _Y), is_op("add")(_X, _X), False),
        (is_op("add")(_X, is_const(2.0)), is_op("add")(_Y, is_const(2.0)), True),
        (is_op("add")(_X, is_const(2.0)), is_op("add")(_Y, is_const(3.0)), False),
        (is_op("concat")(any_number(_X)), is_op("concat")(any_number(_Y)), True),
        (is_op("concat")(any_number(_X)), is_op("concat")(any_number(_Y, at_least=1)), False),
        (_conv() | _relu(), _conv() | _relu(), True),
        (_conv() | _relu(), _relu() | _conv(), False),
    ],
)
def test_equal_forms(left: Pattern, right: Pattern, equal: bool) -> None:
    assert have_equal_form(left, right) is equal


def test_an_unknown_backend_is_the_usual_error() -> None:
    with pytest.raises(BackendNotFoundError) as caught:
        lint_backend("hoast")
    assert str(caught.value).endswith("Did you mean 'host'?")


def test_a_finding_is_plain_data() -> None:
    finding = Finding("unknown-op", "pattern `npu.x`", "the op does not exist", "npu.x", "Did you mean 'add'?")
    assert json.loads(json.dumps(finding.as_dict())) == {
        "severity": "error",
        "code": "unknown-op",
        "where": "pattern `npu.x`",
        "text": "the op does not exist",
        "pattern": "npu.x",
        "hint": "Did you mean 'add'?",
    }


def test_the_host_is_clean() -> None:
    assert lint_backend("host", compile_claims=True) == ()
