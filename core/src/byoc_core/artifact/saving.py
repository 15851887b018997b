"""Saving of artifacts: the members of an executable's archive, and the record of trust for own native code.

Members are the manifest, the program, a payload for each module and the bytes of each cited constant; the manifest
cites all others by digest. Equal executables give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_core.artifact.archive import Buffer, write_archive
from byoc_core.artifact.manifest import (
    CONSTANTS,
    FORMAT_VERSION,
    ConstantEntry,
    FunctionEntry,
    Manifest,
    ModuleEntry,
    RuntimeEntry,
    encode_manifest,
    join_report,
)
from byoc_core.artifact.report_packing import pack_report
from byoc_core.artifact.trusted import trust
from byoc_core.artifact.weight_table import encode_weights
from byoc_core.digest import digest_of
from byoc_core.dtypes import dtype_name
from byoc_core.errors import InternalError
from byoc_core.file_replacement import replace_file
from byoc_core.runtime.module import NDArray
from byoc_core.version import __version__

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["save", "to_bytes"]


def save(
    executable: Executable, path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write an executable to a file; see :meth:`Executable.save`."""
    members = make_members(executable)
    with replace_file(path) as file:
        write_archive(file, members, progress=progress)
    if executable.is_own and any(module.is_native for module in executable.modules):
        trust(hashlib.sha256(members["manifest.json"]).hexdigest())


def to_bytes(executable: Executable) -> bytes:
    """Return an executable as the bytes of an artifact."""
    file = io.BytesIO()
    write_archive(file, make_members(executable))
    return file.getvalue()


def make_members(executable: Executable) -> dict[str, Buffer]:
    """Return the members of the artifact by name.

    Cost: one pass over all constants, to compute the digests anew.

    Raises:
        InternalError: a constant is missing, or differs from the constant named by the digest.
    """
    from byoc_core.runtime.registry import runtimes
    from byoc_core.vm.encoding import encode

    members: dict[str, Buffer] = {}
    needed: dict[str, RuntimeEntry] = {}
    entries: list[ModuleEntry] = []
    borrowed: set[str] = set()
    for index, module in enumerate(executable.modules):
        borrowed.update(module.needed_runtimes)
        handle = runtimes().get(module.type_key)
        payload = handle.save(module)
        members[f"modules/{index}/payload"] = payload
        payload_format = module.payload_format or max(handle.info().formats)
        earlier = needed.get(module.type_key)
        needed[module.type_key] = RuntimeEntry(
            type_key=module.type_key,
            distribution=handle.record.distribution,
            version=handle.record.version,
            payload_format=payload_format if earlier is None else max(payload_format, earlier.payload_format),
        )
        entries.append(
            ModuleEntry(
                type_key=module.type_key,
                functions=tuple(module.function_names),
                native=module.is_native,
                digest=hashlib.sha256(payload).hexdigest(),
            )
        )
    for type_key in borrowed - needed.keys():
        handle = runtimes().get(type_key)
        record = handle.record
        # The artifact has no payload of this runtime: the payload format is irrelevant.
        needed[type_key] = RuntimeEntry(type_key, record.distribution, record.version, min(handle.info().formats))
    constants: dict[str, ConstantEntry] = {}
    for digest, array in sorted(_cited_constants(executable).items()):
        constants[digest] = ConstantEntry(dtype_name(array.dtype), array.shape)
        members[CONSTANTS + digest] = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    program = encode(executable.program)
    members["program"] = program
    manifest = Manifest(
        format="byoc",
        format_version=FORMAT_VERSION,
        core_version=__version__,
        functions=tuple(
            FunctionEntry(name, signature.inputs, signature.outputs) for name, signature in executable.functions.items()
        ),
        runtimes=tuple(needed[type_key] for type_key in sorted(needed)),
        modules=tuple(entries),
        constants=constants,
        program=hashlib.sha256(program).hexdigest(),
    )
    weights = encode_weights(executable.weights) if executable.weights else None
    report = join_report(executable.report_data, executable.request_data, weights)
    members["manifest.json"] = encode_manifest(manifest, pack_report(_plain_json(report)))
    return members


def _cited_constants(executable: Executable) -> dict[str, NDArray]:
    cited: dict[str, NDArray] = {}
    for reference in executable.program.constants:
        array = executable.constants.get(reference.digest)
        if array is None:
            raise InternalError("executable", "cites a missing constant", got=reference.digest)
        cited[reference.digest] = array
    for module in executable.modules:
        cited.update(module.constants)
    cited.update((weight.digest, executable.constants[weight.digest]) for weight in executable.weights.weights)
    for digest, array in cited.items():
        if digest_of(array) != digest:
            raise InternalError(
                "executable",
                "the content of a constant does not match the digest",
                got=digest_of(array),
                expected=digest,
            )
    return cited


def _plain_json(report: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(report), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InternalError("report", f"is not plain JSON: {error}") from error
    return plain
