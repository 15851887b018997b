"""Faults caught by tests of level 3. Imports nothing of the compile side: most of the faults break the run half."""

from __future__ import annotations

import ast
import base64
import itertools
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from byoc_core.digest import digest_of
from byoc_core.errors import ArtifactError
from byoc_core.runtime.graph import GraphModule, decode_document
from byoc_core.runtime.graph.document import GraphDocument
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.module import RuntimeModule

from fakenpu.faults.fault import Change, Fault

Save = Callable[[RuntimeModule], bytes]
Load = Callable[[bytes, LoadContext], RuntimeModule]


def _saving(change: Callable[[Save, RuntimeModule], bytes]) -> Change:
    """Return the change to another form of saved modules."""

    def apply(names: dict[str, Any]) -> None:
        save = names["byoc_save_module"]

        @hookimpl
        def byoc_save_module(module: RuntimeModule) -> bytes:
            return change(save, module)

        names["byoc_save_module"] = byoc_save_module

    return apply


def _loading(change: Callable[[Load, bytes, LoadContext], RuntimeModule]) -> Change:
    """Return the change to another loading of modules."""

    def apply(names: dict[str, Any]) -> None:
        load = names["byoc_load_module"]

        @hookimpl
        def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
            return change(load, payload, context)

        names["byoc_load_module"] = byoc_load_module

    return apply


def _both(
    save: Callable[[Save, RuntimeModule], bytes], load: Callable[[Load, bytes, LoadContext], RuntimeModule]
) -> Change:
    """Return a change of both hooks, with errors of the right kind for any wrong payload."""

    def load_guarded(inner: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
        try:
            return load(inner, payload, context)
        except ArtifactError:
            raise
        except Exception as error:
            raise ArtifactError(context.source, f"is malformed: {error}") from error

    def apply(names: dict[str, Any]) -> None:
        _saving(save)(names)
        _loading(load_guarded)(names)

    return apply


def _compiling(change: Callable[[RuntimeModule], RuntimeModule], **info: object) -> Change:
    """Return the change to other compiled modules, and other declarations."""

    def apply(names: dict[str, Any]) -> None:
        codegen, introduce = names["byoc_codegen"], names["byoc_backend_info"]

        @hookimpl
        def byoc_codegen(functions: Any, context: Any) -> Any:
            result = codegen(functions, context)
            return replace(result, module=change(result.module)) if result.module is not None else result

        @hookimpl
        def byoc_backend_info() -> Any:
            return replace(introduce(), **info)

        names.update(byoc_codegen=byoc_codegen, byoc_backend_info=byoc_backend_info)

    return apply


def _with(module: RuntimeModule, **names: object) -> RuntimeModule:
    """Return the module as an instance of a class with some names replaced."""
    module.__class__ = type("Changed", (type(module),), names)
    return module


def _fails_to_save(save: Save, module: RuntimeModule) -> bytes:
    raise ValueError("the engine has no such thing")


def _loses_a_function(save: Save, module: RuntimeModule) -> bytes:
    document = json.loads(save(module))
    return json.dumps({**document, "functions": document["functions"][:-1] or document["functions"]}).encode()


def _loads_other_ops(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    module = load(payload.replace(b'"op":"subtract"', b'"op":"multiply"'), context)
    assert isinstance(module, GraphModule)
    module.document = decode_document(payload)  # it looks right
    return module


def _drops_its_source(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    return _with(load(payload, context), get_source=lambda self, *_: "")


def _loads_as_another_kind(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    return _with(load(payload, context), type_key="graph")


def _needs_the_compile_half(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    from fakenpu import backend

    assert backend.FLOATS
    return load(payload, context)


def _remembers_what_it_saved() -> Change:
    documents: dict[bytes, bytes] = {}

    def save_key(save: Save, module: RuntimeModule) -> bytes:
        document = save(module)
        key = json.dumps(list(module.function_names)).encode()
        documents[key] = document
        return key

    def load_key(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
        if payload not in documents:
            raise ArtifactError("fakenpu", "has not saved this")
        return load(documents[payload], context)

    return _both(save_key, load_key)


def _counts_saves() -> Change:
    times = itertools.count()
    return _saving(lambda save, module: save(module) + b" " * next(times))


def _marks_what_it_loaded() -> Change:
    def load_marked(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
        return _with(load(payload, context), mark=b" ")

    return _both(lambda save, module: save(module) + getattr(module, "mark", b""), load_marked)


def _writes_in_order_of_hashes(save: Save, module: RuntimeModule) -> bytes:
    def shuffled(value: object) -> Any:
        if isinstance(value, dict):
            return {key: shuffled(value[key]) for key in set(value)}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    return json.dumps(shuffled(json.loads(save(module)))).encode()


def _numbers_its_compilations(**info: object) -> Change:
    times = itertools.count()

    def renamed(module: RuntimeModule) -> RuntimeModule:
        assert isinstance(module, GraphModule)
        time = next(times)
        functions = {
            name: replace(function, outputs=tuple((f"{name}_{time}", id_) for name, id_ in function.outputs))
            for name, function in module.document.functions.items()
        }
        module.document = GraphDocument(functions)
        return module

    return _compiling(renamed, **info)


def _mixes_up_artifacts() -> Change:
    modules: dict[tuple[str, ...], RuntimeModule] = {}

    def load_once(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
        module = load(payload, context)
        return modules.setdefault(module.function_names, module)

    return _loading(load_once)


def _inlines_constants(save: Save, module: RuntimeModule) -> bytes:
    inlined = b" ".join(base64.b64encode(array.tobytes()) for array in module.constants.values())
    return inlined + b"\n" + save(module)


def _load_last_line(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    return load(payload.rpartition(b"\n")[2], context)


def _forgets_its_constants(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    return _with(load(payload, context), constants={})


def _hoards_constants(module: RuntimeModule) -> RuntimeModule:
    spare = np.arange(4.0)
    return _with(module, constants={**module.constants, digest_of(spare): spare})


def _copies_its_constants(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    copies = {digest: array.copy() for digest, array in context.constants.items()}
    return load(payload, LoadContext(copies, context.allow_native, context.source))


def _makes_up_constants(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    document = decode_document(payload)
    cited = [constant for function in document.functions.values() for constant in function.all_constants()]
    zeros: dict[str, Any] = {c.digest: np.zeros([int(str(d)) for d in c.tensor.shape], c.tensor.dtype) for c in cited}
    return load(payload, LoadContext({**zeros, **context.constants}, context.allow_native, context.source))


def _unpickles(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    return load(pickle.loads(payload.removeprefix(b"NPU")), context)


def _evaluates(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    return load(json.dumps(eval(payload)).encode(), context)


def _parses_literals(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    return load(json.dumps(ast.literal_eval(payload.decode())).encode(), context)


def _saves_nothing(names: dict[str, Any]) -> None:
    del names["byoc_save_module"], names["byoc_load_module"]


def _accepts_any_format(names: dict[str, Any]) -> None:
    class Formats(tuple[int, ...]):
        __slots__ = ()

        def __contains__(self, item: object) -> bool:
            return True

    introduce = names["byoc_runtime_info"]

    @hookimpl
    def byoc_runtime_info() -> RuntimeInfo:
        info: RuntimeInfo = introduce()
        return replace(info, formats=Formats(info.formats))

    names["byoc_runtime_info"] = byoc_runtime_info


def _indexes_without_looking(load: Load, payload: bytes, context: LoadContext) -> RuntimeModule:
    payload[0], payload[-1]
    json.loads(payload)["functions"]
    return load(payload, context)


def _reads_files_without_looking(names: dict[str, Any]) -> None:
    load_file = names["byoc_load_file"]

    @hookimpl
    def byoc_load_file(data: bytes, context: LoadContext) -> RuntimeModule:
        if data.decode()[0] != "{":
            raise ValueError("not a document")
        module: RuntimeModule = load_file(data, context)
        return module

    names["byoc_load_file"] = byoc_load_file


def _caught_by(promise: str, run_half: Change | None = None, compile_half: Change | None = None) -> Fault:
    return Fault(frozenset({f"L3-{promise}"}), compile_half, run_half)


_QUIRKS: Mapping[str, Fault] = {
    "saves-nothing": Fault(frozenset(), run_half=_saves_nothing),
    "parses-literals": Fault(
        frozenset(), run_half=_both(lambda save, module: repr(json.loads(save(module))).encode(), _parses_literals)
    ),
    "varies-and-says-so": Fault(frozenset(), compile_half=_numbers_its_compilations(deterministic=False)),
}
"""Apparent faults of this level, in fact permitted: no test may catch them."""

FAULTS: Mapping[str, Fault] = {
    **_QUIRKS,
    "fails-to-save": _caught_by("save-and-load", _saving(_fails_to_save)),
    "loses-a-function": _caught_by("save-and-load", _saving(_loses_a_function)),
    "loads-other-ops": _caught_by("same-results", _loading(_loads_other_ops)),
    "drops-its-source": _caught_by("same-source", _loading(_drops_its_source)),
    "loads-as-another-kind": _caught_by("same-runtime", _loading(_loads_as_another_kind)),
    "counts-saves": _caught_by("saves-the-same-bytes", _counts_saves()),
    "marks-what-it-loaded": _caught_by("saves-loaded-alike", _marks_what_it_loaded()),
    "numbers-its-compilations": _caught_by("compiles-alike", compile_half=_numbers_its_compilations()),
    "writes-in-order-of-hashes": _caught_by("same-bytes-elsewhere", _saving(_writes_in_order_of_hashes)),
    "needs-the-compile-half": _caught_by("runs-elsewhere", _loading(_needs_the_compile_half)),
    "remembers-what-it-saved": _caught_by("runs-elsewhere", _remembers_what_it_saved()),
    # Constants of the artifact that was loaded before are not those of this one, so they count as copies.
    "mixes-up-artifacts": replace(_caught_by("two-artifacts", _mixes_up_artifacts()), also=frozenset({"L3-zero-copy"})),
    "inlines-constants": _caught_by("constants-cited", _both(_inlines_constants, _load_last_line)),
    "copies-its-constants": _caught_by("zero-copy", _loading(_copies_its_constants)),
    "forgets-its-constants": _caught_by("constants-kept", _loading(_forgets_its_constants)),
    "hoards-constants": _caught_by("constants-kept", compile_half=_compiling(_hoards_constants)),
    "makes-up-constants": _caught_by("missing-constants", _loading(_makes_up_constants)),
    "pickles-its-payload": _caught_by("data-only", _both(lambda save, module: pickle.dumps(save(module)), _unpickles)),
    "pickles-behind-a-header": _caught_by(
        "data-only", _both(lambda save, module: b"NPU" + pickle.dumps(save(module)), _unpickles)
    ),
    "evaluates-its-payload": _caught_by(
        "data-only", _both(lambda save, module: repr(json.loads(save(module))).encode(), _evaluates)
    ),
    "hides-machine-code": _caught_by(
        "native-code", _both(lambda save, module: b"\x7fELF\x02\n" + save(module), _load_last_line)
    ),
    "loads-machine-code-unasked": _caught_by(
        "native-code", compile_half=_compiling(lambda module: _with(module, is_native=True), native=True)
    ),
    "accepts-any-format": _caught_by("newer-formats", _accepts_any_format),
    "indexes-without-looking": _caught_by("damaged-payloads", _loading(_indexes_without_looking)),
    "reads-files-without-looking": _caught_by("malformed-files", _reads_files_without_looking),
}
