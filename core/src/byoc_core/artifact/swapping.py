"""Artifacts with other values of swappable weights: no compiler runs, and no native code is loaded.

The derivations of the artifact run by the host's runtime; all other modules are copied as they are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from byoc_core.artifact.adapters import Adapter, adapted_values, open_adapters
from byoc_core.artifact.archive import Buffer, write_archive
from byoc_core.artifact.constants import MappedConstants
from byoc_core.artifact.loading import VERIFIED_NBYTES, OpenedArtifact, open_artifact
from byoc_core.artifact.manifest import CONSTANTS, ConstantEntry, encode_manifest, join_report, split_report
from byoc_core.artifact.report_packing import pack_report
from byoc_core.artifact.trusted import is_trusted, trust
from byoc_core.artifact.weight_table import WeightTable, decode_weights, encode_weights
from byoc_core.artifact.weight_values import ReplacedWeights, cited_digests, replace_weights
from byoc_core.dtypes import dtype_name
from byoc_core.errors import ArtifactError
from byoc_core.file_replacement import replace_file
from byoc_core.runtime.module import NDArray, PackedFunction

__all__ = ["list_weights", "merge_adapters", "swap_weights"]

_HOST_RUNTIME = "graph"


def list_weights(path: str | os.PathLike[str]) -> WeightTable:
    """Return the weights of an artifact: names, dtypes and shapes, and the reasons of weights that are not swappable.

    The table is empty if the model was compiled without swappable weights.

    Raises:
        ArtifactError: the file is no artifact, or is damaged.
        OSError: the file cannot be read.
    """
    return _read_table(open_artifact(path))


def swap_weights(
    path: str | os.PathLike[str],
    values: Mapping[str, npt.ArrayLike],
    output: str | os.PathLike[str] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write an artifact with other values of swappable weights: byte for byte the artifact of a fresh build.

    The fresh build has the same request, and the same choice of swappable weights. Constants computed from weights are
    computed again. The result holds its constants, also if the constants of ``path`` lie in a file of weights. An
    artifact trusted by this user stays trusted.

    Args:
        path: the artifact.
        values: the new values by name; the other weights keep their values.
        output: the file to write; by default ``path`` is replaced.
        progress: called with the bytes of constants written so far and in all.

    Raises:
        WeightsError: the artifact has no swappable weights; a weight is unknown or not swappable; a value has another
            dtype or shape; or a constant cannot be computed from the values. Nothing is written.
        ArtifactError: the file is no artifact, or is damaged.
        OSError: a file cannot be read or written.
    """
    from byoc_core.vm.encoding import encode

    artifact = open_artifact(path)
    table = _read_table(artifact)
    artifact.check_payloads()
    program = artifact.read_program()
    stored = artifact.map_constants()
    replaced = replace_weights(
        table,
        program.constants,
        values,
        partial(_checked, stored),
        partial(_load_derivation, artifact, stored),
        artifact.where,
    )
    members = _members(artifact, stored, replaced, encode(replace(program, constants=replaced.constants)))
    with replace_file(path if output is None else output) as file:
        write_archive(file, members, progress=progress)
    if is_trusted(artifact.digest):
        trust(hashlib.sha256(members["manifest.json"]).hexdigest())


def merge_adapters(
    path: str | os.PathLike[str],
    adapters: Iterable[Adapter | str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write an artifact with low-rank adapters merged into its weights: the artifact of a build of merged weights.

    Args:
        path: the artifact.
        adapters: adapters, or paths for :func:`load_adapter`.
        output: the file to write; by default ``path`` is replaced.
        progress: called with the bytes of constants written so far and in all.

    Raises:
        WeightsError: an adapter does not fit the weights, or the artifact has no swappable weights. Nothing is written.
        ArtifactError: the file is no artifact, or is damaged.
        OSError: a file cannot be read or written.
    """
    artifact = open_artifact(path)
    find_stored = partial(_checked, artifact.map_constants())
    values = adapted_values(_read_table(artifact), find_stored, open_adapters(adapters), artifact.where)
    swap_weights(path, values, output, progress=progress)


def _checked(stored: MappedConstants, digest: str) -> NDArray:
    stored.check(digest)
    return stored[digest]


def _read_table(artifact: OpenedArtifact) -> WeightTable:
    parts = split_report(artifact.report_reader()())
    types = {digest: (entry.dtype, entry.shape) for digest, entry in artifact.manifest.constants.items()}
    return decode_weights(parts.weights, len(artifact.read_program().constants), types.get, artifact.where)


def _load_derivation(artifact: OpenedArtifact, stored: MappedConstants, name: str) -> PackedFunction:
    """Return a derivation from the module of the host's runtime that has the function."""
    from byoc_core.runtime.hooks import LoadContext
    from byoc_core.runtime.registry import runtimes

    for index, entry in enumerate(artifact.manifest.modules):
        if name in entry.functions and entry.type_key == _HOST_RUNTIME and not entry.native:
            for digest in artifact.manifest.constants:
                if artifact.manifest.constants[digest].nbytes < VERIFIED_NBYTES:
                    stored.check(digest)
            context = LoadContext(stored, allow_native=False, source=artifact.where)
            module = runtimes().get(_HOST_RUNTIME).load(artifact.payload(index), context)
            return module.get_function(name)
    raise ArtifactError(f"{artifact.where}, table of weights", f"names a missing derivation `{name}`")


def _members(
    artifact: OpenedArtifact, stored: MappedConstants, replaced: ReplacedWeights, program: bytes
) -> dict[str, Buffer]:
    """Return the members of the artifact with other constants."""
    members: dict[str, Buffer] = {
        name: artifact.data[member.offset : member.end]
        for name, member in artifact.members.items()
        if not name.startswith(CONSTANTS)
    }
    entries: dict[str, ConstantEntry] = {}
    for digest in sorted(cited_digests(replaced.table, replaced.constants)):
        array = replaced.arrays.get(digest)
        if array is None:
            array = _checked(stored, digest)
        entries[digest] = ConstantEntry(dtype_name(array.dtype), tuple(array.shape))
        members[CONSTANTS + digest] = array.reshape(-1).view(np.uint8).data
    members["program"] = program
    manifest = replace(artifact.manifest, constants=entries, program=hashlib.sha256(program).hexdigest())
    parts = split_report(artifact.report_reader()())
    report = join_report(parts.report, parts.request, encode_weights(replaced.table))
    members["manifest.json"] = encode_manifest(manifest, pack_report(report))
    return members
