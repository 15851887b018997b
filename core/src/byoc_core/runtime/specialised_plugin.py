"""The runtime plugin ``specialised``: saves and loads functions compiled for sets of sizes.

The payload is JSON with the payloads of the inner modules in Base64, each for its own runtime. Unknown fields are
refused, so a new field needs a new version. Old artifacts hold version 1.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from byoc_core.dims import shape_symbols
from byoc_core.errors import ArtifactError, ByocError, OptionsError, UntrustedCodeError
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.json_records import (
    DTYPE,
    MisfitError,
    OptionalField,
    any_json,
    integer,
    list_of,
    mapping_of,
    one_of,
    parse_json,
    record,
    shape_of,
    text,
    to_json,
)
from byoc_core.runtime.module import NDArray, RuntimeModule, Signature, TensorSpec
from byoc_core.runtime.sets_of_sizes import MAX_SIZE
from byoc_core.runtime.specialised import Recipe, SpecialisedModule, Variant

__all__ = ["byoc_load_module", "byoc_runtime_info", "byoc_save_module"]

_KEY = "specialised"


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class _Variant:
    function: str
    sizes: Mapping[str, int]
    runtime: str
    format: int
    payload: str


@dataclass(frozen=True, slots=True)
class _Host:
    runtime: str
    format: int
    payload: str


@dataclass(frozen=True, slots=True)
class _Recipe:
    options: Mapping[str, Any]
    text: str
    constants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Payload:
    version: int
    backend: str
    functions: tuple[_Function, ...]
    variants: tuple[_Variant, ...]
    recipe: _Recipe | None = None
    host: _Host | None = None


_NAME = text(min_length=1, max_length=4096)
_SPECS = list_of(record(TensorSpec, name=_NAME, dtype=DTYPE, shape=shape_of()))
_DIGEST = text("[0-9a-f]{64}")
_read_payload = record(
    _Payload,
    version=one_of(1),
    backend=_NAME,
    functions=list_of(record(_Function, name=_NAME, inputs=_SPECS, outputs=_SPECS)),
    variants=list_of(
        record(
            _Variant,
            function=_NAME,
            sizes=mapping_of(_NAME, integer(0, MAX_SIZE)),
            runtime=_NAME,
            format=integer(1),
            payload=text(),
        )
    ),
    recipe=OptionalField(record(_Recipe, options=any_json, text=text(), constants=list_of(_DIGEST))),
    host=OptionalField(record(_Host, runtime=_NAME, format=integer(1), payload=text())),
)


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Return the type key ``specialised``."""
    return RuntimeInfo(_KEY)


@hookimpl
def byoc_save_module(module: RuntimeModule) -> bytes:
    """Return the payloads of all variants and the host form as JSON, with the recipe if the module has a recipe.

    Raises:
        OptionsError: a function is compiled for no sizes, and has no host form and no recipe: no call could ever run.
    """
    specialised = cast("SpecialisedModule", module)
    compiled = {variant.function for variant in specialised.variants}
    empty = [
        name for name in specialised.function_names if name not in compiled and not specialised.has_host_form(name)
    ]
    if empty and specialised.recipe is None:
        inputs = specialised.signatures[empty[0]].inputs
        symbols = ", ".join(sorted(shape_symbols(dim for spec in inputs for dim in spec.shape)))
        raise OptionsError(
            f"function `{empty[0]}` of backend `{specialised.backend}` (static shapes only)",
            "is compiled for no sizes: an artifact could not run the function",
            hint=f"Pass sets of sizes with {symbols} to `build(specialize=...)`, or save with `respecializable=True`.",
        )
    variants = [_Variant(v.function, dict(v.sizes), *_saved(v.module)) for v in specialised.variants]
    host = None if specialised.host is None else _Host(*_saved(specialised.host))
    recipe = None
    if (source := specialised.recipe) is not None:
        recipe = _Recipe(source.options, source.text, tuple(sorted(source.constants)))
    functions = tuple(_Function(name, s.inputs, s.outputs) for name, s in specialised.signatures.items())
    content = _Payload(1, specialised.backend, functions, tuple(variants), recipe, host)
    return json.dumps(to_json(content), default=to_json, sort_keys=True, separators=(",", ":")).encode()


def _saved(module: RuntimeModule) -> tuple[str, int, str]:
    """Return the type key, the format and the payload of a module."""
    from byoc_core.runtime.registry import runtimes

    handle = runtimes().get(module.type_key)
    payload = base64.b64encode(handle.save(module)).decode()
    return handle.type_key, module.payload_format or max(handle.info().formats), payload


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
    """Return the module of a payload.

    Raises:
        ArtifactError: the payload is malformed, or a variant does not fit the function.
        UntrustedCodeError: a compiler would follow options from the payload without permission.
    """
    try:
        content = _read_payload(parse_json(payload))
    except ValueError as error:  # `MisfitError` too
        kind = "is malformed" if isinstance(error, MisfitError) else "is not JSON text"
        raise ArtifactError(context.source, f"{kind}: {error}") from error
    signatures: dict[str, Signature] = {}
    for function in content.functions:
        signature = Signature(function.inputs, function.outputs)
        if function.name in signatures:
            raise ArtifactError(context.source, f"function `{function.name}` occurs twice")
        signatures[function.name] = signature
    variants = []
    for item in content.variants:
        where = f"{context.source}, function `{item.function}`"
        if item.function not in signatures:
            raise ArtifactError(where, "is not declared")
        variants.append(Variant(item.function, tuple(sorted(item.sizes.items())), _load_inner(item, where, context)))
    host = None
    if content.host is not None:
        host = _load_inner(content.host, f"{context.source}, host form", context)
    recipe = compile_sizes = None
    if content.recipe is not None:
        constants = {digest: context.constant(digest) for digest in content.recipe.constants}
        arrays: Mapping[str, NDArray] = constants
        recipe = Recipe(content.backend, content.recipe.options, content.recipe.text, arrays)
        if context.compiler is not None and recipe.options and not context.allow_native:
            # Options may be flags of a C compiler, for example, and so control the code to run.
            raise UntrustedCodeError(
                context.source,
                f"holds options of backend `{recipe.backend}` for the compilation of further sizes",
                hint="Pass allow_native=True if you trust the source.",
            )
        compile_sizes = None if context.compiler is None else partial(context.compiler, recipe)
    try:
        return SpecialisedModule(content.backend, signatures, variants, compile_sizes, recipe, host=host)
    except ByocError as error:
        raise ArtifactError(context.source, str(error)) from error


def _load_inner(item: _Variant | _Host, where: str, context: LoadContext) -> RuntimeModule:
    """Return the module of a variant, or of the host form."""
    from byoc_core.runtime.registry import runtimes

    if item.runtime == _KEY:
        raise ArtifactError(where, "is itself a specialised module")
    handle = runtimes().get(item.runtime, source=where)
    if item.format not in handle.info().formats:
        supported = ", ".join(map(str, handle.info().formats))
        raise ArtifactError(
            where, f"needs another runtime `{item.runtime}`", got=f"format {item.format}", expected=supported
        )
    try:
        payload = base64.b64decode(item.payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ArtifactError(where, f"the payload is not base64: {error}") from error
    return handle.load(payload, context)
