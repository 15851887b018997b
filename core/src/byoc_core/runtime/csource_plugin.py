"""The runtime ``csource``: saves and loads modules of generated C together with the compiled library."""

from __future__ import annotations

import struct
import sys

from byoc_core.errors import InternalError, UntrustedCodeError
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.csource.payload import FORMATS, decode, encode
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.status import Status

__all__ = ["byoc_check_payload", "byoc_load_module", "byoc_runtime_info", "byoc_runtime_status", "byoc_save_module"]


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Return the type key ``csource`` and the loadable formats."""
    return RuntimeInfo(type_key="csource", formats=FORMATS, concurrency="reentrant")


@hookimpl
def byoc_runtime_status() -> Status:
    """Return whether saved modules can run here: no compiler is needed, only a 64-bit system with shared libraries."""
    if struct.calcsize("P") != 8:
        return Status(ok=False, reason="generated code needs a 64-bit Python", remedy="Install a 64-bit Python.")
    if sys.platform == "win32":
        return Status(
            ok=False, reason="generated code is not built for Windows", remedy="Run on Linux or macOS, or under WSL."
        )
    return Status(ok=True)


@hookimpl
def byoc_save_module(module: RuntimeModule) -> bytes:
    """Return text, signatures and library as bytes; compile the text first if needed."""
    if not isinstance(module, CSourceModule):
        raise InternalError(f"module `{module.type_key}`", "is not a C-source module", got=type(module).__name__)
    return encode(module)


@hookimpl
def byoc_check_payload(payload: bytes, context: LoadContext) -> None:
    """Check header, lengths and digest; the native code is not examined."""
    decode(payload, context)


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
    """Return the module of a payload; refuse unless the user permits native code."""
    module = decode(payload, context)
    if not context.allow_native:
        raise UntrustedCodeError(
            context.source,
            f"holds native code (functions {', '.join(module.function_names)})",
            hint="Pass allow_native=True if you trust the source.",
        )
    return module
