"""Backends of static shapes that are asked about symbolic sizes: size by size, with integers in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from byoc_core.backend.handle import BackendHandle
from byoc_core.backend.info import CodegenResult, CompileContext, Rejection, Status, Support
from byoc_core.dims import bound_symbols
from byoc_core.errors import CodegenError, IRTypeError
from byoc_core.ir import Binding, Function, IRModule, TensorType
from byoc_core.pattern import CompositePattern, Match
from byoc_core.pattern.index import FunctionIndex
from byoc_core.runtime.module import RuntimeModule, Signature, TensorSpec
from byoc_core.runtime.specialised import Recipe, Sizes, SpecialisedModule, Variant, sizes_text
from byoc_core.transform.specialise import Specialised, specialise, symbols_in

if TYPE_CHECKING:
    from byoc_core.backend.info import Estimate
    from byoc_core.errors import ByocError

__all__ = ["SpecialisedBackend", "compile_for_sizes"]

_PROBE = 8
"""The size of the first symbol where the user names none; the others count up, so that no two are equal."""


class SpecialisedBackend(BackendHandle):
    """A backend of static shapes that takes symbolic sizes: it compiles a function for each set of sizes.

    Rules, and checks of patterns, see integers in place of symbols. What they take for each set of sizes is claimed.

    Args:
        handle: the backend.
        sizes: the sets of sizes to compile for in advance; a function that needs more symbols than a set has is not
            compiled for that set. Other sizes are compiled when a call brings them.
        options: the backend's options, as the user gave them.
    """

    def __init__(
        self, handle: BackendHandle, sizes: Sequence[Mapping[str, int]], options: Mapping[str, object]
    ) -> None:
        self._inner = handle
        self._plugin = handle._plugin
        self._info = replace(handle._info, dynamic_shapes=True)
        self._sizes = [dict(item) for item in sizes]
        self._given_options = options
        self._functions: dict[tuple[int, Sizes], tuple[Function, Specialised | Rejection]] = {}

    def contain(self, hook: str, error: ByocError, op: str = "") -> Rejection:
        """Do with the error of a hook what the backend does."""
        return self._inner.contain(hook, error, op)

    def compile_status(self, context: CompileContext | None = None) -> Status:
        """Tell whether the backend can compile."""
        return self._inner.compile_status(context)

    def prepare(self, module: IRModule, context: CompileContext) -> IRModule:
        """Return the module as the backend likes it."""
        return self._inner.prepare(module, context)

    @property
    def claims_by_itself(self) -> bool:
        """Whether the backend claims by an algorithm of its own."""
        return self._inner.claims_by_itself

    def partition(self, module: IRModule, context: CompileContext) -> IRModule:
        """Return the module with the backend's claims."""
        return self._inner.partition(module, context)

    def estimate(self, function: Function, context: CompileContext) -> Estimate | None:
        """Return the backend's estimate."""
        return self._inner.estimate(function, context)

    def patterns(self) -> tuple[CompositePattern, ...]:
        """Return the patterns, with checks that see integers."""
        return tuple(replace(pattern, check=self._check(pattern)) for pattern in self._inner.patterns())

    def supports(self, binding: Binding, context: CompileContext) -> Support | Rejection:
        """Tell whether the backend takes one op for each set of sizes."""
        function = Function("op", tuple(_variables(binding)), (binding,), binding.results)
        for sizes in self._tried(function):
            made = self._specialised(function, sizes)
            if isinstance(made, Rejection):
                return made
            answer = self._inner.supports(made.function.bindings[0], context)
            if isinstance(answer, Rejection):
                return _at(answer, sizes)
        return Support()

    def codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        """Compile functions; those with symbols for each set of sizes."""
        symbolic = [function for function in functions if symbols_in(function)]
        if not symbolic:
            return self._inner.codegen(functions, context)
        variants: list[Variant] = []
        signatures: dict[str, Signature] = {}
        rejections: dict[str, Rejection] = {}
        constants: dict[str, Any] = {}
        for function in functions:
            made = self._compile(function, context, constants)
            if isinstance(made, Rejection):
                rejections[function.name] = made
            else:
                variants += made
                signatures[_symbol(function)] = _signature(function)
        if not signatures:
            return CodegenResult(None, rejections=rejections)
        kept = {_symbol(f): f for f in functions if f.name not in rejections}
        module = SpecialisedModule(
            self.name,
            signatures,
            variants,
            lambda name, sizes: compile_for_sizes(self._inner, kept[name], sizes, context),
            self._recipe(kept.values(), context),
        )
        return CodegenResult(module, constants, rejections)

    def _compile(
        self, function: Function, context: CompileContext, constants: dict[str, Any]
    ) -> list[Variant] | Rejection:
        """Return a function compiled for the sets of sizes that the user named; tried with others where none fits."""
        symbols = symbols_in(function)
        params = [param.type.shape or () for param in function.params if isinstance(param.type, TensorType)]
        unknown = sorted(symbols - bound_symbols(params))
        if unknown:
            return Rejection("dynamic-shape", f"its inputs do not tell the size {', '.join(unknown)}")
        named = list(_distinct(symbols, self._sizes)) if symbols else [{}]
        variants = []
        for sizes in named or self._tried(function):
            made = self._specialised(function, sizes)
            if isinstance(made, Rejection):
                return made
            result = self._inner.codegen([made.function], context)
            if result.module is None:
                return _at(result.rejections[function.name], sizes)
            if named:
                constants.update(result.constants)
                variants.append(Variant(_symbol(function), _key(symbols, sizes), result.module))
        return variants

    def _recipe(self, functions: Any, context: CompileContext) -> Recipe:
        module = IRModule({function.name: function for function in functions})
        digests = {
            value.digest
            for function in module.functions.values()
            for binding in function.walk()
            for value in binding.operands
            if hasattr(value, "digest")
        }
        arrays = {digest: context.constants[digest] for digest in sorted(digests)}
        return Recipe(self.name, dict(self._given_options), str(module), arrays)

    def _check(self, pattern: CompositePattern) -> Any:
        def check(match: Match) -> Any:
            function = match.index.function
            for sizes in self._tried(Function("match", tuple(_variables(*match.bindings)), match.bindings, ())):
                made = self._specialised(function, sizes, is_kept=True)
                if isinstance(made, Rejection):
                    return made
                refusal: Any = pattern.check(_specialised_match(match, made)) if pattern.check is not None else None
                if isinstance(refusal, Rejection):
                    return _at(refusal, sizes)
                if refusal is not None:
                    return refusal  # who asked says that this is no answer
            return None

        return check

    def _tried(self, function: Function) -> Iterator[dict[str, int]]:
        """Yield the sizes to ask about: each set that the user named, completed; one of our own where none is named."""
        symbols = sorted(symbols_in(function))
        probe = {name: _PROBE + index for index, name in enumerate(symbols)}
        for sizes in self._sizes or [{}]:
            yield {**probe, **{name: size for name, size in sizes.items() if name in probe}}

    def _specialised(
        self, function: Function, sizes: Mapping[str, int], *, is_kept: bool = False
    ) -> Specialised | Rejection:
        """Return a function for sizes; ``is_kept`` where the same function comes again."""
        key = id(function), tuple(sorted(sizes.items()))
        held = self._functions.get(key)
        if held is not None:
            return held[1]  # the function is held, so its id is its own
        made: Specialised | Rejection
        try:
            made = specialise(function, sizes)
        except IRTypeError as error:
            made = Rejection("dynamic-shape", f"with {sizes_text(key[1])} a size is impossible: {error.problem}")
        if is_kept:
            self._functions[key] = function, made
        return made


def compile_for_sizes(
    handle: BackendHandle, function: Function, sizes: Mapping[str, int], context: CompileContext
) -> RuntimeModule:
    """Return the module of a function for given sizes.

    Raises:
        CodegenError: the backend refuses the function for these sizes.
        IRTypeError: the sizes are impossible.
    """
    made = specialise(function, sizes).function
    result = handle.codegen([made], context)
    if result.module is None:
        rejection = result.rejections[made.name]
        raise CodegenError(f"function `{made.name}`", f"backend `{handle.name}` refuses it: {rejection.text}")
    return result.module


def _variables(*bindings: Binding) -> Iterator[Any]:
    made = {id(result) for binding in bindings for result in binding.results}
    read = {id(o): o for binding in bindings for o in binding.operands if hasattr(o, "name") and id(o) not in made}
    yield from read.values()


def _specialised_match(match: Match, made: Specialised) -> Match:
    index = FunctionIndex(made.function, match.index._constants)
    position = {id(binding): number for number, binding in enumerate(match.index.function.bindings)}

    def binding(original: Binding) -> Binding:
        return made.function.bindings[position[id(original)]]

    return Match(
        binding(match.root),
        tuple(map(binding, match.bindings)),
        tuple(map(made.value, match.inputs)),
        {name: made.value(value) for name, value in match.captures.items()},
        index,
        {name: tuple(map(made.value, values)) for name, values in match.repeated.items()},
    )


def _distinct(symbols: frozenset[str], given: Sequence[Mapping[str, int]]) -> Iterator[dict[str, int]]:
    """Yield the different sets of sizes that name all symbols, and no others."""
    known = set()
    for item in given:
        if symbols <= item.keys():
            key = _key(symbols, item)
            if key not in known:
                known.add(key)
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
