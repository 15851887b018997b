"""Export as a Python wheel: the compiled C and one function over numpy arrays, without any package of byoc.

Formats: wheels as in the specification "Binary distribution format" of the Python packaging guide.
"""

from __future__ import annotations

import base64
import hashlib
import io
import keyword
import os
import re
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from byoc_core.artifact.plain_c.plain_model import PlainModel, plain_model
from byoc_core.artifact.plain_c.wheel_module import python_module
from byoc_core.dtypes import dtype_info
from byoc_core.errors import CodegenError, OptionsError
from byoc_core.file_replacement import replace_file
from byoc_core.native.static_build import build_shared
from byoc_core.vm.program import VMFunction

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["export_wheel"]

_DATE = (1980, 1, 1, 0, 0, 0)


def export_wheel(executable: Executable, folder: str | os.PathLike[str], *, name: str, version: str) -> Path:
    """Write an executable as a wheel; see :meth:`Executable.export_wheel`."""
    try:
        release = str(Version(version))
    except InvalidVersion as error:
        raise OptionsError("option `version`", "is not a version of a package", got=repr(version)) from error
    _check_package(name)
    model = plain_model(executable, name, constants="object")
    function = _entry(executable, model)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    library = build_shared(model.files, model.options)
    dtypes = {spec.dtype for spec in (*function.params, *function.results)}
    requirements = [
        "numpy>=1.24",
        *(["ml_dtypes"] if any(dtype_info(dtype).from_ml_dtypes for dtype in dtypes) else []),
    ]
    distribution = re.sub(r"_+", "_", name).lower()  # the normal form of names of files
    info = f"{distribution}-{release}.dist-info"
    files: dict[str, bytes] = {
        f"{name}/__init__.py": python_module(function, model.names[function.name], name).encode(),
        f"{name}/_{name}.so": library,
        f"{name}/py.typed": b"",
        f"{info}/METADATA": _metadata(name, release, requirements).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: byoc-core\nRoot-Is-Purelib: false\n"
        f"Tag: py3-none-{platform}\n".encode(),
    }
    target = Path(folder) / f"{distribution}-{release}-py3-none-{platform}.whl"
    target.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(target) as stream:
        stream.write(_zip(files, f"{info}/RECORD"))
    return target


def _check_package(name: str) -> None:
    """Check that a package of this name can be installed and imported.

    Raises:
        OptionsError: the name is a keyword, hides a module, or ends in ``_``.
    """
    if keyword.iskeyword(name) or name.endswith("_") or name in (*sys.stdlib_module_names, "numpy", "ml_dtypes"):
        raise OptionsError("option `name`", "is not usable as name of a package", got=repr(name))


def _entry(executable: Executable, model: PlainModel) -> VMFunction:
    functions = {function.name: function for function in executable.program.functions}
    if "main" not in functions:
        raise CodegenError("executable", "has no function `main`", got=", ".join(functions))
    if any(module.options.target for module in model.modules):
        raise CodegenError("executable", "is compiled for another machine; a wheel is made on the machine itself")
    if functions["main"].states:
        hint = "Export C, or call an artifact by a session."
        raise CodegenError(
            "function `main`", "keeps values from call to call; a wheel has functions of arrays", hint=hint
        )
    return functions["main"]


def _metadata(name: str, version: str, requirements: list[str]) -> str:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        "Summary: A neural network as a function of numpy arrays",
        "Requires-Python: >=3.9",
        *(f"Requires-Dist: {requirement}" for requirement in requirements),
    ]
    return "\n".join(lines) + "\n"


def _zip(files: Mapping[str, bytes], record: str) -> bytes:
    """Return the archive with the record of all digests; equal files give equal bytes."""
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    contents = {**files, record: ("\n".join([*rows, f"{record},,"]) + "\n").encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in contents.items():
            member = zipfile.ZipInfo(path, _DATE)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            archive.writestr(member, data)
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
