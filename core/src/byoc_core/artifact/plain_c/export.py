"""The export: all files of a model as plain C, written to a folder, or compiled into a static library."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from byoc_core.artifact.plain_c.plain_model import plain_model
from byoc_core.artifact.plain_c.project import project_files
from byoc_core.artifact.plain_c.test_vector import make_test_vector
from byoc_core.file_replacement import replace_file
from byoc_core.native.static_build import build_archive
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.pools import Pool

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["export_archive", "export_c"]


def export_c(
    executable: Executable,
    folder: str | os.PathLike[str],
    *,
    name: str = "model",
    max_sizes: Mapping[str, int] | None = None,
    constants: str = "auto",
    test_inputs: Mapping[str, NDArray] | None = None,
    pools: Sequence[Pool] = (),
    places_arguments: bool = False,
) -> tuple[Path, ...]:
    """Write an executable as C sources; see :meth:`Executable.export_c`."""
    model = plain_model(executable, name, max_sizes, constants, pools, places_arguments=places_arguments)
    vector = make_test_vector(executable, max_sizes, test_inputs)
    sources = [file for file in model.files if file.endswith(".c")]
    files = {**model.files, **project_files(model, sources, vector)}
    return _write(Path(folder), files)


def export_archive(
    executable: Executable,
    path: str | os.PathLike[str],
    *,
    name: str = "model",
    max_sizes: Mapping[str, int] | None = None,
) -> tuple[Path, ...]:
    """Write an executable as a static library and a header; see :meth:`Executable.export_archive`."""
    model = plain_model(executable, name, max_sizes, "object")
    data = build_archive(model.files, model.options)
    file = Path(path)
    header = file.with_name(f"{name}.h")
    file.parent.mkdir(parents=True, exist_ok=True)
    for target, content in ((file, data), (header, model.files[f"{name}.h"])):
        with replace_file(target) as stream:
            stream.write(content)
    return (file, header)


def _write(folder: Path, files: Mapping[str, bytes]) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        with replace_file(folder / file) as stream:
            stream.write(data)
    return tuple(folder / file for file in files)
