"""Backends of static shapes handling symbolic sizes: each set of sizes is tried with integers in place of symbols.

The wrapped backend is mostly a :class:`~byoc_core.backend.contained.ContainedBackend`. Each method calling a hook must
ask the wrapped backend: an inherited method would call the hook without containing errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from byoc_core.backend.first_use import FirstUse, rules_refusal
from byoc_core.backend.handle import BackendHandle
from byoc_core.backend.info import CodegenResult, CompileContext, Rejection, Status, Support
from byoc_core.backend.sized_functions import SizedFunctions, function_of
from byoc_core.dims import bound_symbols
from byoc_core.errors import CallError
from byoc_core.ir import Binding, Constant, ConstantStore, Function, IRModule, TensorType
from byoc_core.pattern import CompositePattern, Match
from byoc_core.runtime.module import RuntimeModule, Signature, TensorSpec
from byoc_core.runtime.sets_of_sizes import Sizes, sizes_text
from byoc_core.runtime.specialised import Recipe, SpecialisedModule, Variant
from byoc_core.transform.rewrite import inline_composites
from byoc_core.transform.specialise import symbols_in

if TYPE_CHECKING:
    from byoc_core.backend.info import Estimate
    from byoc_core.backend.kernel_report import KernelReport
    from byoc_core.errors import ByocError
    from byoc_core.opset.opdef import OpDef

__all__ = ["SpecialisedBackend"]


class SpecialisedBackend(BackendHandle):
    """A backend of static shapes extended to symbolic sizes: each function is compiled for each set of sizes.

    Rules and pattern checks see integers in place of symbols. An op is claimed if accepted for every set of sizes. A
    backend claiming by itself sees the symbols.

    Args:
        handle: the backend.
        sizes: the sets of sizes to compile for in advance. A function with symbols missing from a set is not compiled
            for the set. Other sizes are compiled in the first call.
        options: the backend's options, as given by the user.
        symbols: the symbols of the module's parameters.
        host: the backend running the sizes refused by this backend; ``None`` if refused sizes are an error of the call.
        is_strict: whether an exception during compilation for a call's sizes is always an error of the call.
    """

    def __init__(
        self,
        handle: BackendHandle,
        sizes: Sequence[Mapping[str, int]],
        options: Mapping[str, object],
        *,
        symbols: frozenset[str] = frozenset(),
        host: BackendHandle | None = None,
        is_strict: bool = False,
    ) -> None:
        self._inner = handle
        self._plugin = handle._plugin
        self._info = replace(handle._info, dynamic_shapes=True)
        self._sizes = [dict(item) for item in sizes]
        self._given_options = options
        self._separates_sizes = not any(symbols <= item.keys() for item in self._sizes)
        self._host = host
        self._is_strict = is_strict
        self._sized = SizedFunctions(self._sizes)

    def contain(self, hook: str, error: ByocError, op: str = "") -> Rejection:
        """Treat the error of a hook like the wrapped backend."""
        return self._inner.contain(hook, error, op)

    def compile_status(self, context: CompileContext | None = None) -> Status:
        """Return whether the backend can compile."""
        return self._inner.compile_status(context)

    def rewrite(self, hook: str, module: IRModule, context: CompileContext) -> IRModule:
        """Return the module after a hook."""
        return self._inner.rewrite(hook, module, context)

    @property
    def claims_by_itself(self) -> bool:
        """Whether the backend claims by its own algorithm."""
        return self._inner.claims_by_itself

    def partition(self, module: IRModule, context: CompileContext) -> IRModule:
        """Return the module with the backend's claims."""
        return self._inner.partition(module, context)

    def estimate(self, function: Function, context: CompileContext) -> Estimate | None:
        """Return the backend's estimate."""
        return self._inner.estimate(function, context)

    def ops(self) -> tuple[OpDef, ...]:
        """Return the backend's own ops."""
        return self._inner.ops()

    def patterns(self) -> tuple[CompositePattern, ...]:
        """Return the patterns, with checks seeing integers."""
        return tuple(replace(pattern, check=self._check(pattern)) for pattern in self._inner.patterns())

    def supports(self, binding: Binding, context: CompileContext) -> Support | Rejection:
        """Return whether the backend accepts an op for every set of sizes."""
        function = function_of("op", binding)

        def ask(sizes: Mapping[str, int]) -> Support | Rejection:
            sized = self._sized.at(function, sizes)
            return sized if isinstance(sized, Rejection) else self._inner.supports(sized.bindings[0], context)

        return self._first_refusal(ask, function) or Support()

    @property
    def separates_sizes(self) -> bool:
        """Whether no set of sizes named by the user covers all symbols of the module."""
        return self._separates_sizes

    def codegen_groups(self, functions: Sequence[Function]) -> list[list[Function]]:
        """Return the functions of known sizes, compiled as usual, and the functions with symbols, as two groups."""
        static: list[Function] = []
        symbolic: list[Function] = []
        for function in functions:
            (symbolic if symbols_in(function) else static).append(function)
        return [group for group in (static, symbolic) if group]

    def codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        """Compile functions; functions with symbols once for each set of sizes."""
        if not any(map(symbols_in, functions)):
            return self._inner.codegen(functions, context)
        context = replace(context, weights={})  # several sizes may want several forms of a weight
        variants: list[Variant] = []
        compiled: list[Function] = []
        rejections: dict[str, Rejection] = {}
        constants: dict[str, Any] = {}
        for function in functions:
            outcome = self._compile(function, context, constants)
            if isinstance(outcome, Rejection):
                rejections[function.name] = outcome
            else:
                variants += outcome
                compiled.append(function)
        if not compiled:
            return CodegenResult(None, rejections=rejections)
        # Only these functions are held for later calls, not the model.
        module = _module_of(compiled, context)
        host = self._host_forms(compiled, module)
        if host is not None:
            constants.update(host.constants)
        specialised = SpecialisedModule(
            self.name,
            {_symbol(function): _signature(function) for function in compiled},
            variants,
            self._first_use(module, context),
            _recipe(self.name, module, self._given_options),
            host=host,
            is_strict=self._is_strict,
        )
        return CodegenResult(specialised, constants, rejections)

    def generated_kernels(self, functions: Sequence[Function], context: CompileContext) -> tuple[KernelReport, ...]:
        """Return the kernels of the functions of known sizes."""
        return self._inner.generated_kernels([item for item in functions if not symbols_in(item)], context)

    def _compile(
        self, function: Function, context: CompileContext, constants: dict[str, Any]
    ) -> list[Variant] | Rejection:
        """Return a function's variants for the user's sets of sizes; try other sizes if no set covers all symbols."""
        symbols = symbols_in(function)
        params = [param.type.shape or () for param in function.params if isinstance(param.type, TensorType)]
        unknown = sorted(symbols - bound_symbols(params))
        if unknown:
            return Rejection("dynamic-shape", f"the inputs do not determine the size {', '.join(unknown)}")
        named = list(_distinct(symbols, self._sizes)) if symbols else [{}]
        if not named:
            return self._try(function, context) or []
        variants = []
        for sizes in named:
            sized = self._sized.at(function, sizes)
            if isinstance(sized, Rejection):
                return _at(sized, sizes)
            result = self._inner.codegen([sized], context)
            if not result.modules:
                return _at(result.rejections[function.name], sizes)
            variant = Variant(_symbol(function), _key(symbols, sizes), result.modules[0])
            try:
                SpecialisedModule(self.name, {variant.function: _signature(function)}, [variant])
            except CallError as error:  # the module does not fit the function passed to codegen
                return self._inner.contain("byoc_codegen", error, function.name)
            constants.update(result.constants)
            variants.append(variant)
        return variants

    def _try(self, function: Function, context: CompileContext) -> Rejection | None:
        """Return why the backend refuses a function not covered by the user's sizes; ``None`` for no refusal.

        Each op was asked about alone, for the first sizes possible for this op. The same sizes may be impossible
        for the whole function.
        """
        for tried in self._sized.completions(function):
            refusals = []
            for sizes in tried:
                sized = self._sized.at(function, sizes)
                refusal = sized if isinstance(sized, Rejection) else rules_refusal(self._inner, sized, context)
                if isinstance(sized, Function) and refusal is None:
                    refusal = self._inner.codegen([sized], context).rejections.get(function.name)
                if refusal is None:
                    break
                refusals.append(_at(refusal, sizes))
            else:
                return refusals[0]
        return None

    def _first_use(self, module: IRModule, context: CompileContext) -> FirstUse:
        functions = {_symbol(function): function for function in module.functions.values()}
        handle = self._inner.uncontained
        return FirstUse(handle, functions, handle.context(module, context.options))

    def _host_forms(self, functions: Sequence[Function], module: IRModule) -> RuntimeModule | None:
        """Return the functions compiled by the host, except functions refused by the host."""
        if self._host is None:
            return None
        return self._host.codegen([inline_composites(f) for f in functions], self._host.context(module)).module

    def _first_refusal(
        self, ask: Callable[[Mapping[str, int]], Any], part: Function, container: Function | None = None
    ) -> Any:
        """Return the first refusal among the answers for sizes, naming the sizes if these may be the reason."""
        own = symbols_in(part)
        for sizes in self._sized.tried(part, container):
            answer = ask(sizes)
            if isinstance(answer, Rejection):
                named = {name: size for name, size in sizes.items() if name in own}
                is_settled = not self._sizes and ask(self._sized.alternative(part, container)) == answer
                return answer if is_settled else _at(answer, named)
            if answer is not None and not isinstance(answer, Support):
                return answer  # the caller reports the wrong type
        return None

    def _check(self, pattern: CompositePattern) -> Any:
        def check(match: Match) -> Any:
            part = function_of("match", *sorted(match.bindings, key=lambda b: match.index.position[id(b)]))

            def ask(sizes: Mapping[str, int]) -> Any:
                sized = self._sized.match_at(match, part, sizes)
                if isinstance(sized, Rejection):
                    return sized
                return None if pattern.check is None else pattern.check(sized)

            return self._first_refusal(ask, part, match.index.function)

        return check


def _module_of(functions: Sequence[Function], context: CompileContext) -> IRModule:
    """Return a module of functions with the cited constants."""
    store = ConstantStore()
    for value in _constants_of(functions):
        store.adopt(value, context.constant(value))
    module = IRModule({function.name: function for function in functions}, store)
    return module if context.module is None else replace(module, ops=context.module.ops)


def _constants_of(functions: Sequence[Function]) -> Iterator[Constant]:
    for function in functions:
        bindings = list(function.walk())
        bodies = [region for binding in bindings for region in binding.regions]
        cited = [*function.results, *(result for body in bodies for result in body.results)]
        for value in (*cited, *(operand for binding in bindings for operand in binding.operands)):
            if isinstance(value, Constant):
                yield value


def _recipe(backend: str, module: IRModule, options: Mapping[str, object]) -> Recipe:
    digests = {value.digest for value in _constants_of(list(module.functions.values()))}
    arrays = {digest: module.constants[digest] for digest in sorted(digests)}
    return Recipe(backend, dict(options), str(module), arrays)


def _distinct(symbols: frozenset[str], size_sets: Sequence[Mapping[str, int]]) -> Iterator[dict[str, int]]:
    """Yield the different sets of sizes covering all symbols, without other names."""
    seen = set()
    for item in size_sets:
        if symbols <= item.keys():
            key = _key(symbols, item)
            if key not in seen:
                seen.add(key)
                yield dict(key)


def _key(symbols: frozenset[str], sizes: Mapping[str, int]) -> Sizes:
    return tuple((name, sizes[name]) for name in sorted(symbols))


def _at(rejection: Rejection, sizes: Mapping[str, int]) -> Rejection:
    if not sizes:
        return rejection
    return replace(rejection, text=f"with {sizes_text(tuple(sorted(sizes.items())))}: {rejection.text}")


def _symbol(function: Function) -> str:
    return str(function.attrs["global_symbol"])


def _signature(function: Function) -> Signature:
    def spec(name: str, type_: Any) -> TensorSpec:
        return TensorSpec(name, type_.dtype, type_.shape)

    inputs = tuple(spec(param.name, param.type) for param in function.params)
    outputs = zip(function.output_names, function.result_types, strict=True)
    return Signature(inputs, tuple(spec(name, type_) for name, type_ in outputs))
