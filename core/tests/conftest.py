"""A backend for tests of the compile side: claims the listed ops, run with the reference kernels."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal

import numpy as np
import pytest
from byoc_core.backend import (
    AxisOrders,
    BackendInfo,
    CodegenResult,
    CompileContext,
    Estimate,
    Rejection,
    Status,
    Support,
)
from byoc_core.backend.hooks import hookimpl
from byoc_core.ir import CALL, CALL_DPS_PACKED, CALL_PACKED, Binding, Function, IRModule, TensorType, Type
from byoc_core.ops import OpDef, default_ops
from byoc_core.pattern import CompositePattern
from byoc_core.plugin.installation import Installation, using
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule, Signature, TensorSpec
from byoc_core.transform import evaluate_function
from hypothesis import strategies as st
from pydantic import BaseModel


class FakeModule(RuntimeModule):
    """Functions run by the reference interpreter, with checks of the callers' side of the contract."""

    type_key = "fake"

    def __init__(
        self, backend: str, functions: Sequence[Function], context: CompileContext, *, strided: bool = False
    ) -> None:
        self.backend = backend
        self.strided = strided
        self.functions = {str(function.attrs["global_symbol"]): function for function in functions}
        self._context = context

    @property
    def function_names(self) -> tuple[str, ...]:
        return tuple(self.functions)

    def call_traits(self, name: str) -> CallTraits:
        return CallTraits(strided=self.strided)

    def find_function(self, name: str) -> PackedFunction:
        function = self.functions[name]
        assert self._context.module is not None
        module = IRModule({function.name: function}, self._context.module.constants)

        def run(*arrays: NDArray) -> None:
            assert self.strided or all(array.flags.c_contiguous for array in arrays)
            outputs = arrays[len(function.params) :]
            for output, value in zip(outputs, _evaluate(module, function, arrays), strict=True):
                np.copyto(output, value)

        return PackedFunction(name, run, _signature(function))


def _evaluate(module: IRModule, function: Function, arrays: Sequence[Any]) -> tuple[Any, ...]:
    return evaluate_function(module, function.name, arrays[: len(function.params)])


def _signature(function: Function) -> Signature:
    outputs = tuple(_spec(f"output{i}", result.type) for i, result in enumerate(function.results))
    return Signature(tuple(_spec(param.name, param.type) for param in function.params), outputs)


def _spec(name: str, type_: Type) -> TensorSpec:
    assert isinstance(type_, TensorType)
    assert type_.shape is not None
    return TensorSpec(name, type_.dtype, type_.shape)


class FakeBackend:
    """A plugin object.

    Args:
        name: the backend's name.
        ops: the ops claimed singly (``None``: every op).
        patterns: the composite patterns.
        supports: decides on single ops instead of ``ops``.
        rejects: by symbol (``"*"``: all), the codegen's reason for refusing a function.
        forgets: symbols neither compiled nor refused by codegen.
        dynamic_shapes: whether symbolic sizes are supported.
        data_dependent_sizes: whether sizes depending on data are supported.
        constants: the requested form of constants.
        strided: whether functions take strided views.
        min_region_flops: the least worthwhile region.
        options: the model of the options.
        status: whether it can compile here.
        prepare: the action of ``byoc_prepare``.
        estimate: the result of ``byoc_estimate`` for a function.
        layouts: the result of ``byoc_layouts`` for a function.
        schedules: the result of ``byoc_schedules`` for a function.
    """

    def __init__(
        self,
        name: str = "fake",
        ops: Iterable[str] | None = (),
        patterns: Sequence[CompositePattern] = (),
        *,
        supports: Callable[[Binding], Support | Rejection] | None = None,
        rejects: Mapping[str, Rejection] | None = None,
        forgets: Iterable[str] = (),
        dynamic_shapes: bool = True,
        data_dependent_sizes: bool = False,
        constants: Literal["embedded", "lifted"] = "embedded",
        unit_roundoff: Mapping[str, float] = MappingProxyType({}),
        strided: bool = False,
        quantised: bool = False,
        min_region_flops: int = 0,
        options: type[BaseModel] | None = None,
        status: Status | None = None,
        prepare: Callable[[IRModule], IRModule] | None = None,
        estimate: Callable[[Function], Estimate | None] | None = None,
        layouts: Callable[[Function], Sequence[AxisOrders] | None] | None = None,
        schedules: Callable[[Function], Mapping[str, Sequence[str]]] | None = None,
    ) -> None:
        self.name = name
        self.ops = None if ops is None else frozenset(ops)
        self.patterns = patterns
        self.rejects = rejects or {}
        self.forgets = frozenset(forgets)
        self.contexts: list[CompileContext] = []
        self.compiled: list[Function] = []
        self._supports = supports
        self._info = BackendInfo(
            name,
            dynamic_shapes=dynamic_shapes,
            data_dependent_sizes=data_dependent_sizes,
            constants=constants,
            options=options,
            unit_roundoff=unit_roundoff,
            strided=strided,
            quantised=quantised,
            min_region_flops=min_region_flops,
        )
        self._status = status or Status(ok=True)
        self._prepare = prepare
        self._estimate = estimate
        self._layouts = layouts
        self._schedules = schedules

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return self._info

    @hookimpl
    def byoc_compile_status(self) -> Status:
        return self._status

    @hookimpl
    def byoc_prepare(self, module: IRModule) -> IRModule:
        return self._prepare(module) if self._prepare is not None else module

    @hookimpl
    def byoc_patterns(self) -> Sequence[CompositePattern]:
        return self.patterns

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        if self._supports is not None:
            return self._supports(binding)
        if self.ops is None or binding.op.name in self.ops:
            return Support()
        return Rejection("op", f"no `{binding.op.name}` here")

    @hookimpl
    def byoc_estimate(self, function: Function) -> Estimate | None:
        return self._estimate(function) if self._estimate is not None else None

    @hookimpl
    def byoc_layouts(self, function: Function) -> Sequence[AxisOrders] | None:
        return self._layouts(function) if self._layouts is not None else None

    @hookimpl
    def byoc_schedules(self, function: Function) -> Mapping[str, Sequence[str]]:
        return self._schedules(function) if self._schedules is not None else {}

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        self.contexts.append(context)
        rejections = {f.name: reason for f in functions if (reason := self._refusal(f)) is not None}
        taken = [f for f in functions if f.name not in rejections and f.attrs["global_symbol"] not in self.forgets]
        self.compiled.extend(taken)
        return CodegenResult(self._module(taken, context) if taken else None, rejections=rejections)

    def _module(self, functions: Sequence[Function], context: CompileContext) -> FakeModule:
        return FakeModule(self.name, functions, context, strided=self._info.strided)

    def _refusal(self, function: Function) -> Rejection | None:
        reason = self.rejects.get(str(function.attrs["global_symbol"])) or self.rejects.get("*")
        for binding in function.bindings if reason is None else ():
            if binding.op.name != "composite":
                answer = self.byoc_supports(binding)
                reason = reason or (answer if isinstance(answer, Rejection) else None)
        return reason


@pytest.fixture(scope="session")
def fake_backend() -> type[FakeBackend]:
    """The class of fake backends."""
    return FakeBackend


RunCompiled = Callable[[IRModule, str, Sequence[Any]], tuple[Any, ...]]


@pytest.fixture(scope="session")
def run_compiled() -> RunCompiled:
    """Run a function of a module after ``RunCodegen`` with the reference interpreter, external modules included."""

    def run(module: IRModule, name: str, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return evaluate_function(with_inlined_externals(module), name, inputs)

    return run


def with_inlined_externals(module: IRModule) -> IRModule:
    """Return the module with the external functions of fake backends as functions of the module again."""
    functions = {
        f"extern_{symbol}": replace(function, name=f"extern_{symbol}", attrs={})
        for external in module.attrs.get("external_mods", ())
        for symbol, function in external.functions.items()
    }

    def inlined(function: Function) -> Function:
        bindings = []
        for binding in function.bindings:
            regions = tuple(map(inlined, binding.regions))
            if binding.op in (CALL_DPS_PACKED, CALL_PACKED) and f"extern_{binding.attrs['symbol']}" in functions:
                attrs = CALL.normalise_attrs({"callee": f"extern_{binding.attrs['symbol']}"})
                binding = replace(binding, op=CALL, attrs=attrs)
            bindings.append(replace(binding, regions=regions))
        return replace(function, bindings=tuple(bindings))

    return module.with_functions({**functions, **{n: inlined(f) for n, f in module.functions.items()}})


@pytest.fixture(scope="session")
def load_case_files() -> Callable[[Path, str], list[ModuleType]]:
    """Return a function loading a folder's test files by pattern; each file has a dict ``_CASES``."""

    def load(path: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"cases_of_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return lambda folder, pattern: [load(path) for path in sorted(folder.glob(pattern))]


@pytest.fixture(scope="session")
def rule_cases(load_case_files: Callable[[Path, str], list[ModuleType]]) -> dict[str, Callable[..., Any]]:
    """Strategies of operands and attributes fitting an op's type rule, by op name."""
    files = load_case_files(Path(__file__).parent / "ops", "*_type_rules*.py")
    stated = {name: case for file in files for name, case in file._CASES.items()}
    return {name: stated.get(name) or _canonical(op) for name, op in default_ops().items() if op.kernel is not None}


def _canonical(op: OpDef) -> Callable[..., Any]:
    """A strategy drawing a canonical case of an op."""

    def case(draw: Callable[..., Any]) -> tuple[list[tuple[tuple[int, ...], str]], dict[str, Any]]:
        chosen = draw(st.sampled_from(op.canonical_cases))
        operands = [(operand.shape, operand.dtype or chosen.dtype) for operand in chosen.operands]
        return operands, dict(chosen.attrs)

    return case


@pytest.fixture(scope="session")
def gather_cases(load_case_files: Callable[[Path, str], list[ModuleType]]) -> Callable[[Path, str], set[str]]:
    """Return a function collecting the keys of ``_CASES`` from a folder's test files by pattern."""
    return lambda folder, pattern: {name for file in load_case_files(folder, pattern) for name in file._CASES}


@pytest.fixture
def look_again() -> Iterator[Callable[[], None]]:
    """Return a function repeating the search for plugins in this test, as in a new process."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(using(Installation()))


@pytest.fixture
def install_faulty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_again: Callable[[], None]
) -> Callable[[], str]:
    """Return a function installing ``debugging/faulty_backend.py`` for this process and child processes.

    The function returns the backend's name.
    """

    def install() -> str:
        site = tmp_path / "site"
        info = site / "byoc_faulty-1.0.dist-info"
        info.mkdir(parents=True)
        shutil.copy(Path(__file__).parent / "debugging" / "faulty_backend.py", site / "installed_faulty_backend.py")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: byoc-faulty\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[byoc.backends]\nfaulty = installed_faulty_backend:plugin\n")
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.setenv("BYOC_BACKENDS", "faulty")
        look_again()
        return "faulty"

    return install
