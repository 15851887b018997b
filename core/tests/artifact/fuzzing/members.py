"""Artifacts taken apart and put together, with digests matching the contents."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any

from byoc_core.artifact.archive import Buffer, read_archive, write_archive
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.encoding import decode, encode
from byoc_core.vm.program import Program

__all__ = ["Members", "packed", "program_of", "taken_apart", "with_program"]

Members = dict[str, bytes]
"""The members of an artifact, by name."""


def taken_apart(content: bytes) -> Members:
    """Return the members of an artifact."""
    members = read_archive(memoryview(content), "artifact")
    return {name: content[member.offset : member.end] for name, member in members.items()}


def packed(members: Mapping[str, bytes]) -> bytes:
    """Return the artifact of these members; the manifest cites all actual digests."""
    made: dict[str, Buffer] = dict(members)
    try:
        manifest = json.loads(members["manifest.json"])
        manifest["program"] = hashlib.sha256(members["program"]).hexdigest()
        for index, entry in enumerate(manifest["modules"]):
            entry["digest"] = hashlib.sha256(members[f"modules/{index}/payload"]).hexdigest()
        made["manifest.json"] = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, LookupError, TypeError):
        pass  # a mutant's manifest may say nothing of the kind
    file = io.BytesIO()
    write_archive(file, made)
    return file.getvalue()


def program_of(members: Mapping[str, bytes]) -> Program:
    """Return the program of an artifact."""
    return decode(members["program"])


def with_program(members: Mapping[str, bytes], program: Program) -> Members:
    """Return the members with another program, and a manifest describing the functions of the program."""
    manifest = json.loads(members["manifest.json"])
    manifest["functions"] = [
        {"name": f.name, "inputs": _specs(f.params), "outputs": _specs(f.results)} for f in program.functions
    ]
    return {**members, "program": encode(program), "manifest.json": json.dumps(manifest).encode()}


def _specs(specs: tuple[TensorSpec, ...]) -> list[dict[str, Any]]:
    return [
        {"name": s.name, "dtype": s.dtype, "shape": [d if isinstance(d, int) else str(d) for d in s.shape]}
        for s in specs
    ]
