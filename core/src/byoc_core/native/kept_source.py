"""Generated C in a folder for people: to read, to change, to build by hand."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from byoc_core.errors import ToolchainError
from byoc_core.native.compile_units import support_files
from byoc_core.native.compiler_process import write_files
from byoc_core.native.toolchain import BuildOptions, find_toolchain

__all__ = ["keep_source"]


def keep_source(folder: str | os.PathLike[str], name: str, source: str, options: BuildOptions | None = None) -> None:
    """Writes C into a folder, which is made where it is missing: ``sh <name>.sh`` builds ``<name>.so`` there.

    Args:
        folder: gets ``<name>.c``, the files of byoc that are compiled with it, and ``<name>.sh``.
        name: what the files are called.
        source: the text.
        options: how it is compiled.

    Raises:
        ToolchainError: there is no C compiler, or the folder cannot be written.
    """
    options = options or BuildOptions()
    toolchain = find_toolchain(options.target)
    support = support_files({f"{name}.c": source})
    units = [f"{name}.c", *(file for file in support if file.endswith(".c"))]
    libraries = toolchain.libraries(options, [source, *support.values()])
    flags = [*toolchain.flags(options), *toolchain.link_flags(options)]
    command = [*toolchain.command, *dict.fromkeys(flags), "-o", f"{name}.so", *units, *libraries]
    script = f'# {toolchain.version.splitlines()[0]}\ncd "$(dirname "$0")" && {shlex.join(command)}\n'
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_files(Path(folder), {**support, f"{name}.c": source, f"{name}.sh": script})
    except OSError as error:
        raise ToolchainError(f"folder `{os.fspath(folder)}`", f"cannot keep sources: {error}") from error
