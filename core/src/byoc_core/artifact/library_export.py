"""Export of an executable as one shared library.

The library holds the generated C of all C modules, the VM's functions as C, and the bytes of the artifact. The C finds
constants at offsets in these bytes. :func:`byoc_core.native.bundle.read_bundle` finds the artifact for
:func:`byoc_core.load_module`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from byoc_core.artifact.archive import read_archive
from byoc_core.artifact.manifest import CONSTANTS
from byoc_core.artifact.native_program import NativeProgram
from byoc_core.artifact.program_c import program_source
from byoc_core.artifact.saving import to_bytes
from byoc_core.native.build_options import merge_linkage
from byoc_core.native.bundle import BundleSource, build_bundle
from byoc_core.runtime.csource import CSourceModule
from byoc_core.vm.verify import verify

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["export_library"]


def export_library(executable: Executable, path: str | os.PathLike[str]) -> None:
    """Write one shared library with everything; see :meth:`Executable.export_library`."""
    verify(executable.program)
    blob = to_bytes(executable)
    members = read_archive(memoryview(blob), "artifact")
    offsets = {
        name.removeprefix(CONSTANTS): member.offset for name, member in members.items() if name.startswith(CONSTANTS)
    }
    program = NativeProgram(executable.program, executable.modules)
    native = [module for module in executable.modules if isinstance(module, CSourceModule)]
    sources = [
        BundleSource(
            module.get_source("c"),
            tuple(offsets[digest] for digest in module.constants),
            tuple((f"__tvm_ffi_{name}", program.region_symbol(name)) for name in module.function_names),
        )
        for module in native
    ]
    functions = BundleSource(program_source(program, offsets, len(blob)))
    for module in native:
        module.check_buildable()
    options = merge_linkage([module.options for module in native]) if native else None
    build_bundle([*sources, functions], blob, path, options=options)
