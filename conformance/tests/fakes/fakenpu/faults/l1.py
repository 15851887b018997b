"""Faults caught by tests of level 1."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from byoc_core.backend.hooks import (
    BackendInfo,
    CodegenResult,
    CompileContext,
    Estimate,
    Rejection,
    Support,
    hookimpl,
)
from byoc_core.ir import Binding, Constant, Function, IRModule, TensorType
from byoc_core.ops import default_ops
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.runtime.graph import GraphModule
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule
from byoc_core.transform.rewrite import map_functions, with_bindings

from fakenpu.faults.fault import Change, Fault

Refusal = Callable[[Binding], Rejection | None]


def _supports(refuse: Refusal) -> Change:
    """Refuse too much."""

    def change(names: dict[str, Any]) -> None:
        supports = names["byoc_supports"]

        @hookimpl
        def byoc_supports(binding: Binding) -> Support | Rejection:
            return refuse(binding) or cast("Support | Rejection", supports(binding))

        names["byoc_supports"] = byoc_supports

    return change


def _refuses_own_op(binding: Binding) -> Rejection | None:
    return Rejection("op", "it is not done yet") if binding.op.name == "fakenpu.double" else None


def _refuses_symbols(binding: Binding) -> Rejection | None:
    is_symbolic = any(isinstance(value.type, TensorType) and value.type.symbols for value in binding.operands)
    return Rejection("shape", "it needs static sizes") if is_symbolic else None


def _refuses_long_names(binding: Binding) -> Rejection | None:
    return Rejection("name", "the name is too long") if len(binding.results[0].name) > 8 else None


def _refuses_axes(binding: Binding) -> Rejection | None:
    """Refuse all but scalars: a table may be small."""
    is_scalar = all(isinstance(value.type, TensorType) and value.type.shape == () for value in binding.results)
    is_own = binding.op.name == "fakenpu.double"
    return None if is_scalar or is_own else Rejection("rank", "only scalars are taken")


def _refuses_by_hash(binding: Binding) -> Rejection | None:
    key = f"{binding.op.name} {[str(value.type) for value in binding.operands]}"
    is_listed = binding.op.name == "fakenpu.double" or hash(key) % 2 == 0
    return None if is_listed else Rejection("table", "it is not in the table")


def _refuses_after_another_type() -> Refusal:
    """Refuse `exp` right after an `exp` of another type, until the next different question."""
    seen: list[Binding] = []

    def refuse(binding: Binding) -> Rejection | None:
        if not seen or seen[-1] is not binding:
            seen.append(binding)
        if len(seen) < 2 or not seen[-2].op.name == binding.op.name == "exp":
            return None
        is_same = seen[-2].operands[0].type == binding.operands[0].type
        return None if is_same else Rejection("busy", "the unit is set to another type")

    return refuse


def _refuses_company(names: dict[str, Any]) -> None:
    """Refuse `exp` in functions of several ops."""
    supports = names["byoc_supports"]

    @hookimpl
    def byoc_supports(binding: Binding, context: CompileContext) -> Support | Rejection:
        functions = () if context.module is None else context.module.functions.values()
        home = next((f for f in functions if any(b.results[0] is binding.results[0] for b in f.bindings)), None)
        if binding.op.name == "exp" and home is not None and len(home.bindings) > 1:
            return Rejection("function", "the function is too long")
        return supports(binding)  # type: ignore[no-any-return]

    names["byoc_supports"] = byoc_supports


def _refuses_constants(binding: Binding) -> Rejection | None:
    is_constant = any(isinstance(operand, Constant) for operand in binding.operands)
    return Rejection("constant", "an operand is constant") if is_constant else None


def _takes_single_ops_only(refuse: Refusal) -> Change:
    """Refuse too much, without patterns as a substitute."""

    def change(names: dict[str, Any]) -> None:
        @hookimpl
        def byoc_patterns() -> Sequence[CompositePattern]:
            return []

        names["byoc_patterns"] = byoc_patterns
        _supports(refuse)(names)

    return change


def _takes_halves(names: dict[str, Any]) -> None:
    """Support float16 in place of the dtypes of most cases."""
    names["FLOATS"] = ("float16",)
    _takes_single_ops_only(lambda binding: None)(names)


def _explains(code: str, text: str) -> Change:
    """Decline softmax, unsupported anyhow, with these words."""
    return _supports(lambda binding: Rejection(code, text) if binding.op.name == "nn.softmax" else None)


def _declares_data_dependent_sizes(names: dict[str, Any]) -> None:
    info = names["byoc_backend_info"]()

    @hookimpl
    def byoc_backend_info() -> BackendInfo:
        return replace(info, data_dependent_sizes=True)  # type: ignore[no-any-return]

    names["byoc_backend_info"] = byoc_backend_info


def _has_a_pattern_that_takes_nothing(names: dict[str, Any]) -> None:
    patterns = names["byoc_patterns"]
    rejection = Rejection("size", "the rows are no multiple of 64")
    never = CompositePattern("fakenpu.exp_twice", is_op("exp")(is_op("exp")(wildcard())), check=lambda match: rejection)

    @hookimpl
    def byoc_patterns() -> Sequence[CompositePattern]:
        return [*patterns(), never]

    names["byoc_patterns"] = byoc_patterns


Codegen = Callable[[Sequence[Function], CompileContext], CodegenResult]


def _codegen(wrap: Callable[[Codegen], Codegen]) -> Change:
    """Compile wrongly."""

    def change(names: dict[str, Any]) -> None:
        wrapped = wrap(names["byoc_codegen"])

        @hookimpl
        def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
            return wrapped(functions, context)

        names["byoc_codegen"] = byoc_codegen

    return change


def _refuses_what_it_claims(op: str) -> Change:
    def wrap(codegen: Codegen) -> Codegen:
        def refuse(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
            late = [f for f in functions if any(binding.op.name == op for binding in f.bindings)]
            result = codegen([f for f in functions if f not in late], context)
            rejections = {f.name: Rejection("late", "no room for a table") for f in late}
            return replace(result, rejections={**result.rejections, **rejections})

        return refuse

    return _codegen(wrap)


def _tries_harder(codegen: Codegen) -> Codegen:
    def change_options(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        cast("Any", context.options).effort = 3
        return codegen(functions, context)

    return change_options


class _WithOneMore(GraphModule):
    @property
    def function_names(self) -> tuple[str, ...]:
        return (*super().function_names, "fakenpu_initialise")

    def find_function(self, name: str) -> PackedFunction:
        return super().find_function(self._real(name))

    def call_traits(self, name: str) -> CallTraits:
        return super().call_traits(self._real(name))

    def _real(self, name: str) -> str:
        return super().function_names[0] if name == "fakenpu_initialise" else name


class _WithOtherTypes(GraphModule):
    def find_function(self, name: str) -> PackedFunction:
        function = super().find_function(name)
        is_exp = any(node.op == "exp" for node in self.document.functions[name].nodes)
        if function.signature is None or not is_exp:
            return function
        outputs = tuple(replace(spec, dtype="float16") for spec in function.signature.outputs)
        return PackedFunction(name, function.impl, replace(function.signature, outputs=outputs))


class _Native(GraphModule):
    @property
    def is_native(self) -> bool:
        return True


class _Unknown(GraphModule):
    @property
    def type_key(self) -> str:
        return "fakenpu_next"


def _gives(kind: type[GraphModule]) -> Change:
    def change(names: dict[str, Any]) -> None:
        def wrap(codegen: Codegen) -> Codegen:
            def change_module(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
                result = codegen(functions, context)
                if not isinstance(result.module, GraphModule):
                    return result
                module = kind(result.module.document, result.module.constants, names["FakeEngine"]())
                return replace(result, module=module)

            return change_module

        _codegen(wrap)(names)

    return change


def _compiles_anything(names: dict[str, Any]) -> None:
    """Compile an unknown op as the known op with the same number of operands."""
    ops = default_ops()
    stand_ins = {1: ops["exp"], 2: ops["add"]}

    def wrap(codegen: Codegen) -> Codegen:
        def compile_anything(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
            def known_only(binding: Binding) -> Binding:
                if binding.op.name in names["KERNELS"] or binding.op.name == "composite":
                    return binding
                op = stand_ins.get(len(binding.operands))
                return binding if op is None else replace(binding, op=op, attrs=op.normalise_attrs({}))

            changed = [with_bindings(f, [known_only(binding) for binding in f.bindings]) for f in functions]
            return codegen(changed, context)

        return compile_anything

    _codegen(wrap)(names)


def _prepares_other_numbers(names: dict[str, Any]) -> None:
    add, subtract = default_ops()["add"], default_ops()["subtract"]

    @hookimpl
    def byoc_prepare(module: IRModule) -> IRModule:
        def change(function: Function) -> Function:
            changed = [replace(b, op=add) if b.op is subtract else b for b in function.bindings]
            return with_bindings(function, changed)

        return map_functions(module, change)

    names["byoc_prepare"] = byoc_prepare


def _rewrites_other_numbers(names: dict[str, Any]) -> None:
    add, subtract = default_ops()["add"], default_ops()["subtract"]

    @hookimpl
    def byoc_after_partition(module: IRModule) -> IRModule:
        def change(function: Function) -> Function:
            changed = [replace(b, op=add) if b.op is subtract else b for b in function.bindings]
            return replace(function, bindings=tuple(changed))

        own = {name: change(f) for name, f in module.functions.items() if f.attrs.get("Codegen") == "fakenpu"}
        return module.with_functions({**module.functions, **own})

    names["byoc_after_partition"] = byoc_after_partition


def _links_other_numbers(names: dict[str, Any]) -> None:
    @hookimpl
    def byoc_after_codegen(module: IRModule) -> IRModule:
        symbols = {s for s, f in module.attrs["external_functions"].items() if f.attrs["Codegen"] == "fakenpu"}
        externals = module.attrs["external_mods"]
        return module.with_attrs(
            external_mods=tuple(_Shifted(e) if symbols.issuperset(e.function_names) else e for e in externals)
        )

    names["byoc_after_codegen"] = byoc_after_codegen


class _Shifted(RuntimeModule):
    """A module adding 1 to each first result."""

    def __init__(self, inner: RuntimeModule) -> None:
        self.inner = inner

    @property
    def type_key(self) -> str:
        return self.inner.type_key

    @property
    def function_names(self) -> tuple[str, ...]:
        return tuple(self.inner.function_names)

    @property
    def constants(self) -> Mapping[str, Any]:
        return self.inner.constants

    def find_function(self, name: str) -> PackedFunction:
        function = self.inner.get_function(name)
        assert function.signature is not None
        position = len(function.signature.inputs)

        def run(*arrays: NDArray) -> None:
            function(*arrays)
            arrays[position][...] = ~arrays[position] if arrays[position].dtype == bool else arrays[position] + 1

        return PackedFunction(name, run, function.signature)


def _estimates_as_it_likes(names: dict[str, Any]) -> None:
    times = itertools.count(1)

    @hookimpl
    def byoc_estimate(function: Function) -> Estimate:
        return Estimate(seconds=1e-6 * next(times))

    names["byoc_estimate"] = byoc_estimate


def _caught_by(promise: str, compile_half: Change) -> Fault:
    return Fault(frozenset({f"L1-{promise}"}), compile_half)


FAULTS: Mapping[str, Fault] = {
    # Nothing is wrong with a backend of other dtypes.
    "takes-halves": Fault(frozenset(), _takes_halves),
    "takes-scalars": Fault(frozenset(), _supports(_refuses_axes)),
    "refuses-what-it-claims": Fault(frozenset({"L1-op-compiles", "L2-op"}), _refuses_what_it_claims("exp")),
    "forgets-its-own-op": _caught_by("own-ops", _supports(_refuses_own_op)),
    "has-a-pattern-that-takes-nothing": _caught_by("patterns-claim", _has_a_pattern_that_takes_nothing),
    "refuses-what-its-pattern-claims": _caught_by("patterns-compile", _refuses_what_it_claims("composite")),
    "declares-dynamic-shapes-and-takes-none": _caught_by("capability", _takes_single_ops_only(_refuses_symbols)),
    "declares-data-dependent-sizes-and-takes-none": _caught_by("capability", _declares_data_dependent_sizes),
    "embeds-constants-and-takes-none": _caught_by("capability", _takes_single_ops_only(_refuses_constants)),
    "declines-with-a-sentence-for-a-code": _caught_by("declines-explained", _explains("Not supported", "no kernel")),
    "declines-without-a-text": _caught_by("declines-explained", _explains("op", "")),
    "declines-with-a-paragraph": _caught_by("declines-explained", _explains("op", "No kernel. Sorry.")),
    "claims-by-name": _caught_by("claims-independent", _supports(_refuses_long_names)),
    "claims-by-order": _caught_by("claims-independent", _supports(_refuses_after_another_type())),
    "claims-by-company": _caught_by("claims-independent", _refuses_company),
    "claims-by-hash": _caught_by("claims-independent", _supports(_refuses_by_hash)),
    "gives-one-function-more": _caught_by("codegen-functions", _gives(_WithOneMore)),
    # What does not fit cannot be linked, so whatever runs it sees that too.
    "gives-other-types": Fault(
        frozenset({"L1-codegen-functions", "L2-op", "L2-onnx", "L2-random-graphs"}),
        _gives(_WithOtherTypes),
        also=frozenset({"L4-thread-*"}),
    ),
    "changes-the-options": _caught_by("codegen-leaves-input", _codegen(_tries_harder)),
    "gives-native-code-undeclared": _caught_by("native-declared", _gives(_Native)),
    "gives-modules-that-nothing-loads": _caught_by("module-runtime", _gives(_Unknown)),
    "compiles-what-it-does-not-know": _caught_by("foreign-ops-refused", _compiles_anything),
    "prepares-other-numbers": _caught_by("prepare-keeps-meaning", _prepares_other_numbers),
    "rewrites-other-numbers": _caught_by("after-partition-keeps-meaning", _rewrites_other_numbers),
    "links-other-numbers": _caught_by("after-codegen-keeps-meaning", _links_other_numbers),
    "estimates-as-it-likes": _caught_by("estimates-repeat", _estimates_as_it_likes),
}
