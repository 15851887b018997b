"""The runtime modules from codegen: the requested functions, as declared, and nothing else touched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from byoc_core.backend.hooks import CompileContext
from byoc_core.errors import ByocError
from byoc_core.ir import EXTERNAL_MODULES, Function, TensorType, Value, digest_of, print_function, print_module
from byoc_core.runtime import runtimes
from byoc_core.runtime.module import RuntimeModule, TensorSpec

from byoc_conformance.lowered_calls import step_functions
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l1_partition.case_functions import few_claims
from byoc_conformance.subject import Attempt, Subject

__all__ = ["PROMISES"]


def _regions(attempt: Attempt) -> dict[str, Function]:
    """Return the regions expected to be compiled, by symbol."""
    return {
        str(region.attrs["global_symbol"]): region
        for name, regions in attempt.regions.items()
        if name not in attempt.failures
        for region in regions
    }


def _compiled(subject: Subject) -> tuple[RuntimeModule, ...]:
    """Return the subject's modules of a few claims.

    Raises:
        NotCoveredError: nothing is claimed, or no claim was compiled.
    """
    attempt = few_claims(subject)
    regions = _regions(attempt)
    modules: tuple[RuntimeModule, ...] = tuple(attempt.compiled.attrs.get(EXTERNAL_MODULES, ()))
    own = tuple(module for module in modules if any(name in regions for name in module.function_names))
    if not own:
        raise NotCoveredError("no claimed function was compiled")
    return own


def _check_functions(subject: Subject, case: str) -> None:
    modules, regions = _compiled(subject), _regions(few_claims(subject))
    returned = [name for module in modules for name in module.function_names if name not in step_functions(module)]
    if sorted(returned) != sorted(regions):
        extra, missing = sorted(set(returned) - set(regions)), sorted(set(regions) - set(returned))
        deviations = [
            f"{word} {', '.join(names)}" for word, names in (("beyond", extra), ("without", missing)) if names
        ]
        raise FailedError(
            f"codegen returned functions {' and '.join(deviations) or 'twice'}, "
            "expected exactly the requested functions"
        )
    for module in modules:
        for name in (name for name in module.function_names if name in regions):
            signature = module.get_function(name).signature
            if signature is not None:
                _check_tensors(regions[name], "input", regions[name].params, signature.inputs)
                _check_tensors(regions[name], "output", regions[name].results, signature.outputs)


def _check_tensors(region: Function, role: str, values: Sequence[Value], specs: Sequence[TensorSpec]) -> None:
    """Compare the tensors of a signature with the tensors of the function; lifted constants come behind the inputs.

    Raises:
        FailedError: a tensor differs in dtype or in a static size, or the number of tensors differs.
    """
    expected = [str(value.type) for value in values]
    is_right = len(specs) >= len(values) if role == "input" else len(specs) == len(values)
    if not is_right or not all(map(_is_compatible, values, specs)):
        found = [f"{spec.dtype} {spec.shape}" for spec in specs]
        raise FailedError(
            f"the compiled function has the {role}s {', '.join(found) or 'none'}, expected {', '.join(expected)}:\n"
            f"{print_function(region)}"
        )


def _is_compatible(value: Value, spec: TensorSpec) -> bool:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.shape is None:
        return True
    sizes = zip(type_.shape, spec.shape, strict=False)
    is_same = all(
        spec_size == size if isinstance(size, int) else not isinstance(spec_size, int) for size, spec_size in sizes
    )
    return spec.dtype == type_.dtype and len(spec.shape) == len(type_.shape) and is_same


def _check_runtime(subject: Subject, case: str) -> None:
    for module in _compiled(subject):
        try:
            runtimes().get(module.type_key)
        except ByocError as error:
            raise FailedError(f"codegen returned a module with the type key `{module.type_key}`: {error}") from error


def _check_native(subject: Subject, case: str) -> None:
    for module in _compiled(subject):
        if module.is_native and not subject.info.native:
            raise FailedError(f"codegen returned a module `{module.type_key}` of native code; declare `native=True`")


def _check_input(subject: Subject, case: str) -> None:
    attempt = few_claims(subject)
    lifted = subject.info.constants == "lifted"
    functions = [r for r in _regions(attempt).values() if not (lifted and any(_constants(r)))]
    if not functions:
        raise NotCoveredError("the backend claims nothing without constants")
    context = subject.handle.context(attempt.partitioned, subject.spec.options)
    before = _snapshot(functions, context)
    subject.handle.codegen(functions, context)
    after = _snapshot(functions, context)
    for label, text in before.items():
        if after[label] != text:
            raise FailedError(f"codegen changed {label}:\n{text}\nthen\n{after[label]}")


def _constants(function: Function) -> Iterator[Value]:
    return (operand for binding in function.walk() for operand in binding.operands if hasattr(operand, "digest"))


def _snapshot(functions: Sequence[Function], context: CompileContext) -> dict[str, str]:
    """Return everything visible to codegen as text."""
    assert context.module is not None
    arrays = {digest: f"{array.dtype} {array.shape} {digest_of(array)}" for digest, array in context.constants.items()}
    return {
        "a function": "\n".join(map(print_function, functions)),
        "the module": print_module(context.module),
        "the constants": json.dumps(arrays),
        "the options": repr(context.options),
    }


PROMISES = (
    Promise(
        Level.L1,
        "codegen-functions",
        "compiles exactly the requested functions, with unchanged parameters and results",
        _check_functions,
        deadline=180.0,
    ),
    Promise(
        Level.L1,
        "codegen-leaves-input",
        "leaves functions, module, constants and options unchanged during compilation",
        _check_input,
        deadline=180.0,
    ),
    Promise(
        Level.L1,
        "module-runtime",
        "produces modules of an installed runtime",
        _check_runtime,
        deadline=180.0,
    ),
    Promise(
        Level.L1,
        "native-declared",
        "produces modules of native code only if declared",
        _check_native,
        deadline=180.0,
    ),
)
