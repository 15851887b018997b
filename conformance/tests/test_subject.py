"""A subject without tools is not asked for anything, and the tools of companions count too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from byoc_conformance import Runner, Status, Subject, SubjectSpec, all_promises, find_item
from byoc_conformance.outcome import NotCoveredError, Outcome
from byoc_conformance.promise import Level, Promise
from byoc_core.backend import BackendHandle
from byoc_core.backend.hooks import CodegenResult, CompileContext
from byoc_core.errors import CodegenError
from byoc_core.ir import Function, TensorType
from byoc_core.pattern import CompositePattern, Match, Rejection, is_op, wildcard
from byoc_core.runtime.hooks import Status as ToolStatus

pytestmark = pytest.mark.interpreter

COMPILING = [
    promise
    for promise in all_promises()
    if promise.level is not Level.L0 and (promise.level, promise.name) != (Level.L2, "stated-precision")
]


@pytest.fixture
def _no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``fakenpu`` declare no ability to compile here."""

    def compile_status(handle: BackendHandle, context: object = None) -> ToolStatus:
        return ToolStatus(handle.name != "fakenpu", "npucc is not on PATH", "Install the SDK.")

    monkeypatch.setattr(BackendHandle, "compile_status", compile_status)


@pytest.mark.usefixtures("_no_tools")
@pytest.mark.parametrize("promise", COMPILING, ids=lambda promise: f"{promise.level}-{promise.name}")
def test_what_cannot_compile_here_is_not_covered_and_says_why(promise: Promise, fakenpu: str) -> None:
    with pytest.raises(NotCoveredError) as caught:
        promise.check(Subject(SubjectSpec(fakenpu)), promise.cases()[0])
    assert str(caught.value) == "`fakenpu` cannot compile here: npucc is not on PATH"


@pytest.mark.usefixtures("_no_tools")
def test_a_companion_that_cannot_compile_here_is_not_blamed_on_the_subject(fakenpu: str) -> None:
    with pytest.raises(NotCoveredError, match=r"^`fakenpu` cannot compile here: npucc is not on PATH$"):
        Subject(SubjectSpec("host", companions=(fakenpu,))).require_tools()
    Subject(SubjectSpec("host")).require_tools()


@pytest.mark.parametrize("name", ["L2-op[exp]", "L2-pattern", "L3-save-and-load", "L4-stateless"])
def test_what_cannot_run_here_is_not_covered_and_says_why(
    name: str, fakenpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend compiles for another machine."""
    monkeypatch.setenv("FAKENPU_FAULT", "status-without-remedy")
    with Runner(SubjectSpec(fakenpu, examples=1)) as runner:
        outcome = runner.run(find_item(name)).outcome
    assert outcome == Outcome(Status.NOT_COVERED, "modules of `fakenpu` cannot run here: the driver is too old")


def test_claims_that_are_not_compiled_are_no_pass(fakenpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 1 reports these; a test of numbers has nothing to check."""
    monkeypatch.setenv("FAKENPU_FAULT", "refuses-what-it-claims")
    with Runner(SubjectSpec(fakenpu, examples=1)) as runner:
        outcome = runner.run(find_item("L2-onnx[exp]")).outcome
    assert outcome == Outcome(Status.NOT_COVERED, "no claimed op of these cases could be compiled")


def test_what_a_companion_cannot_compile_is_not_blamed_on_the_subject(
    fakenpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codegen = BackendHandle.codegen

    def fail_on_host(handle: BackendHandle, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        if handle.name == "host":
            raise CodegenError("host", "is out of order")
        return codegen(handle, functions, context)

    monkeypatch.setattr(BackendHandle, "codegen", fail_on_host)
    picky = CompositePattern(f"{fakenpu}.exp", is_op("exp")(wildcard()), check=_refuse_all_but_float32)
    monkeypatch.setattr(BackendHandle, "patterns", lambda handle: (picky,) if handle.name == fakenpu else ())
    promises = {promise.name: promise for promise in all_promises() if promise.level is Level.L1}
    promises["patterns-compile"].check(Subject(SubjectSpec(fakenpu, companions=("host",))), "")


def _refuse_all_but_float32(match: Match) -> Rejection | None:
    type_ = match.root.result.type
    is_float32 = isinstance(type_, TensorType) and type_.dtype == "float32"
    return None if is_float32 else Rejection("dtype", "it is not float32")
