"""Loading of artifacts: the file is mapped and checked, and becomes an executable."""

from __future__ import annotations

import gc
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc_core.artifact.archive import Member, check_crc, map_file, read_archive
from byoc_core.artifact.constants import MappedConstants, StoredBytes
from byoc_core.artifact.executable import Executable
from byoc_core.artifact.manifest import CONSTANTS, Manifest, check_version, decode_manifest
from byoc_core.artifact.stored_report import COPY_AGAIN, read_report, read_report_with_compiler
from byoc_core.artifact.trusted import is_trusted
from byoc_core.artifact.weights_file import WEIGHTS_NAME, WeightsFile, open_weights
from byoc_core.errors import ArtifactError, IRTypeError, ProgramError, UntrustedCodeError
from byoc_core.runtime.module import RuntimeModule, Signature

if TYPE_CHECKING:
    from byoc_core.runtime.hooks import LoadContext
    from byoc_core.runtime.registry import RuntimeHandle
    from byoc_core.runtime.specialised import SizesRefused
    from byoc_core.vm.program import Program

__all__ = [
    "VERIFIED_NBYTES",
    "OpenedArtifact",
    "check_payload",
    "load",
    "load_opened",
    "open_artifact",
    "paused_collection",
]

VERIFIED_NBYTES = 1 << 20
"""Constants of fewer bytes are checked at every loading of an artifact; larger constants by :func:`verify`."""


def load(
    path: str | os.PathLike[str],
    *,
    allow_native: bool = False,
    compiler: Callable[..., RuntimeModule | SizesRefused] | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> Executable:
    """Load the executable of an artifact. Constants stay in the file, mapped read-only.

    Everything but constants of a mebibyte or more is checked against a digest (:func:`verify` checks all). Nothing of
    the compile side is imported.

    Args:
        path: the file.
        allow_native: whether native code in the file may be loaded. Artifacts compiled by this user are trusted
            already.
        compiler: compiles for sizes absent from the artifact: ``byoc_core.compiler()``. The compiler is called for
            artifacts saved with ``respecializable=True``. If such an artifact holds options of a backend,
            ``allow_native`` or trust is needed too: options may choose programs run by a compiler.
        weights: the file with the constants of an artifact without constants (``byoc weights share``); by default
            ``weights.byocw`` beside the artifact.

    Raises:
        ArtifactError: the file is no artifact, is damaged, or is of a newer format; or its constants are not found.
        UntrustedCodeError: the artifact holds native code, and nobody allowed native code.
        RuntimeNotFoundError: a needed runtime is not installed; says what to install.
        OSError: the file cannot be read.
    """
    with paused_collection():
        opened = open_artifact(path, weights)
        return load_opened(opened, allow_native=allow_native, compiler=compiler)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause Python's garbage collection: loading makes many objects, and none of these is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_opened(
    artifact: OpenedArtifact, *, allow_native: bool, compiler: Callable[..., RuntimeModule | SizesRefused] | None = None
) -> Executable:
    """Load the executable of an artifact with an already read manifest; see :func:`load`."""
    artifact.check_payloads()
    program = artifact.read_program()
    constants = artifact.map_constants()
    for digest, entry in artifact.manifest.constants.items():
        if entry.nbytes < VERIFIED_NBYTES:
            constants.check(digest)
    handles = _find_runtimes(artifact)
    native = [entry for entry in artifact.manifest.modules if entry.native]
    is_own = is_trusted(artifact.digest)
    allow_native = allow_native or is_own
    if native and not allow_native:
        names = [name for entry in native for name in entry.functions]
        raise UntrustedCodeError(
            artifact.where,
            f"holds native code (functions {', '.join(names)})",
            hint="Pass allow_native=True if you trust the origin of the artifact.",
        )
    from byoc_core.runtime.hooks import LoadContext

    context = LoadContext(constants, allow_native, artifact.where, compiler)
    modules = [
        _load_module(artifact, index, handles[entry.type_key], context)
        for index, entry in enumerate(artifact.manifest.modules)
    ]
    artifact.give_back_pages()
    report: Callable[[], Mapping[str, Any]] = artifact.report_reader()
    if compiler is not None:
        report = partial(read_report_with_compiler, report, modules)
    data = None if artifact.outside else artifact.data
    return Executable(program, modules, constants, report, is_own=is_own, artifact=data)


def open_artifact(path: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None) -> OpenedArtifact:
    """Read container and manifest of an artifact, and find the constants.

    Args:
        path: the artifact.
        weights: as for :func:`load`.

    Raises:
        ArtifactError: as for :meth:`OpenedArtifact.open`.
        OSError: a file cannot be read.
    """
    data, where = map_file(path), f"artifact `{os.fspath(path)}`"
    if weights is not None:
        weights_file = open_weights(weights)
        return OpenedArtifact.open(data, where, lambda: weights_file)
    beside = Path(path).parent / WEIGHTS_NAME
    return OpenedArtifact.open(data, where, lambda: open_weights(beside) if beside.is_file() else None)


@dataclass(frozen=True)
class OpenedArtifact:
    """An artifact with checked container and manifest.

    Attributes:
        data: the whole file.
        where: the name of the artifact in errors.
        manifest: the decoded manifest.
        members: the positions of the members, by name.
        outside: the bytes of constants in a file of weights, by digest.
    """

    data: memoryview
    where: str
    manifest: Manifest
    members: Mapping[str, Member]
    outside: Mapping[str, StoredBytes] = field(default_factory=dict)

    @classmethod
    def open(
        cls, data: memoryview, where: str, find_weights: Callable[[], WeightsFile | None] = lambda: None
    ) -> OpenedArtifact:
        """Read container and manifest.

        Args:
            data: the whole file.
            where: the name of the artifact in errors.
            find_weights: returns the file of weights of an artifact without constants, if there is any.

        Raises:
            ArtifactError: no artifact, damaged, members missing or not expected, or a newer format version.
        """
        try:
            members = read_archive(data, where)
        except ArtifactError:
            _explain_foreign_zip(data, where)
            raise
        member = members.get("manifest.json")
        if member is None:
            raise ArtifactError(where, "is not a byoc artifact: it has no member manifest.json")
        check_crc(data, member, where)
        manifest = decode_manifest(bytes(data[member.offset : member.end]), where)
        expected = manifest.member_names()
        missing = sorted(expected - set(members))
        weights = find_weights() if any(name.startswith(CONSTANTS) for name in missing) else None
        outside: dict[str, StoredBytes] = {}
        for name in missing:
            digest = name.removeprefix(CONSTANTS)
            if weights is None or digest == name or digest not in weights.stored:
                raise _missing_member(where, name, weights, members)
            outside[digest] = weights.stored[digest]
        if unexpected := sorted(set(members) - expected):
            raise ArtifactError(where, f"has a member not named by the manifest: {unexpected[0]}")
        return cls(data, where, manifest, members, outside)

    @property
    def digest(self) -> str:
        """The artifact's identity: the SHA-256 of the manifest. The manifest cites everything else by digest."""
        return hashlib.sha256(self.read("manifest.json")).hexdigest()

    def read(self, name: str) -> bytes:
        """Return a copy of a member's data, unchecked."""
        member = self.members[name]
        return bytes(self.data[member.offset : member.end])

    def payload(self, index: int) -> bytes:
        """Return the payload of a module, unchecked."""
        return self.read(f"modules/{index}/payload")

    def map_constants(self) -> MappedConstants:
        """Return the constants, mapped; only the sizes are checked.

        Raises:
            ArtifactError: a size differs from the manifest.
        """
        stored = {
            digest: self.outside.get(digest) or StoredBytes(self.data, self.members[CONSTANTS + digest])
            for digest in self.manifest.constants
        }
        return MappedConstants(self.manifest.constants, stored, self.where)

    def report_reader(self) -> Callable[[], dict[str, Any]]:
        """Return a function to read the offload report; the function keeps only the file."""
        return partial(read_report, self.data, self.members["manifest.json"], self.where)

    def give_back_pages(self) -> None:
        """Advise the system to drop the pages of everything but constants from memory: these pages have been read.

        Reading the pages again finds the same bytes, a little later.
        """
        mapping = self.data.obj
        if not isinstance(mapping, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
            return
        members = [member for name, member in self.members.items() if not name.startswith(CONSTANTS)]
        directory = max(member.end for member in self.members.values())
        for start, end in (*((member.offset, member.end) for member in members), (directory, len(self.data))):
            start -= start % mmap.PAGESIZE
            with suppress(OSError):  # the process may have locked its memory
                mapping.madvise(mmap.MADV_DONTNEED, start, end - start)

    def check_payloads(self) -> None:
        """Check the modules' payloads against the digests.

        Raises:
            ArtifactError: a payload is damaged.
        """
        for index, entry in enumerate(self.manifest.modules):
            self._check_digest(f"modules/{index}/payload", entry.digest)

    def check_crcs(self) -> None:
        """Check the CRC-32 of every member, as zip tools do. Cost: one pass over the file.

        Raises:
            ArtifactError: a member is damaged.
        """
        for member in self.members.values():
            check_crc(self.data, member, self.where)

    def read_program(self) -> Program:
        """Return the program, checked against the digest, the laws of programs and the manifest.

        Raises:
            ArtifactError: the program is damaged, breaks a law, or differs from the manifest's description.
        """
        from byoc_core.vm.encoding import decode
        from byoc_core.vm.verify import verify

        self._check_digest("program", self.manifest.program)
        where = f"{self.where}, member program"
        try:
            program = decode(self.read("program"))
            verify(program)
        except ProgramError as error:
            raise ArtifactError(where, f"is malformed: {error}") from error
        declared = {entry.name: entry.to_signature() for entry in self.manifest.functions}
        if declared != {f.name: Signature(f.inputs, f.outputs) for f in program.functions}:
            raise ArtifactError(where, "has functions other than declared by the manifest")
        for reference in program.constants:
            entry = self.manifest.constants.get(reference.digest)
            if entry is None or (entry.dtype, entry.shape) != (reference.dtype, reference.shape):
                raise ArtifactError(where, "cites a missing constant", got=reference.digest)
        return program

    def _check_digest(self, name: str, expected: str) -> None:
        member = self.members[name]
        if hashlib.sha256(self.data[member.offset : member.end]).hexdigest() != expected:
            raise ArtifactError(f"{self.where}, member {name}", "is damaged", hint=COPY_AGAIN)


def _missing_member(where: str, name: str, weights: WeightsFile | None, members: Mapping[str, Member]) -> ArtifactError:
    if not name.startswith(CONSTANTS) or any(member.startswith(CONSTANTS) for member in members):
        return ArtifactError(where, f"has no member {name}", hint=COPY_AGAIN)
    text = f"constant {name.removeprefix(CONSTANTS)[:12]} is not in the artifact"
    if weights is not None:
        return ArtifactError(where, f"{text}, nor in {weights.where}", hint="Another file holds the constants.")
    return ArtifactError(
        where,
        text,
        hint=f"The constants are in another file: put `{WEIGHTS_NAME}` beside the artifact, pass its path to"
        " load(path, weights=...), or make the artifact whole by `byoc weights join`.",
    )


def _explain_foreign_zip(data: memoryview, where: str) -> None:
    """Raise a specific error for a sound zip made by a newer core, or by no core."""
    import io
    import json
    import zipfile

    raw: object = None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # If one name is damaged, other names of artifacts remain.
            is_ours = any(name.startswith(("manifest.json", "modules/", "program")) for name in archive.namelist())
            if is_ours:
                info = archive.getinfo("manifest.json")
                if info.compress_type != zipfile.ZIP_STORED:
                    return
                raw = json.loads(archive.read(info))
    except Exception:  # noqa: BLE001 - anything goes wrong in a damaged file; the caller has the error to raise
        return
    if not is_ours:
        hint = "Artifacts are made by `byoc compile` or `Executable.save`."
        raise ArtifactError(where, "is a zip archive, but not a byoc artifact", hint=hint)
    check_version(raw, where)


def _find_runtimes(artifact: OpenedArtifact) -> dict[str, RuntimeHandle]:
    """Return the runtimes of all modules by type key."""
    from byoc_core.runtime.registry import runtimes

    handles: dict[str, RuntimeHandle] = {}
    with_payloads = {module.type_key for module in artifact.manifest.modules}
    for entry in artifact.manifest.runtimes:
        handle = runtimes().get(entry.type_key, source=artifact.where, distribution=entry.distribution)
        formats = handle.info().formats
        if entry.type_key in with_payloads and entry.payload_format not in formats:
            raise ArtifactError(
                artifact.where,
                f"needs runtime `{entry.type_key}` of {entry.distribution} {entry.version} or newer: the payload format"
                f" is {entry.payload_format}",
                got=f"{handle.record.distribution} {handle.record.version} for formats {', '.join(map(str, formats))}",
                hint=f"pip install -U {handle.record.distribution}",
            )
        handles[entry.type_key] = handle
    for module in artifact.manifest.modules:
        if module.type_key not in handles:
            raise ArtifactError(artifact.where, f"the manifest names no runtime for modules of `{module.type_key}`")
    return handles


def check_payload(artifact: OpenedArtifact, index: int, context: LoadContext) -> bool:
    """Check the payload of a module, without loading; return whether the module's runtime is installed and can check.

    Raises:
        ArtifactError: the payload breaks a law.
    """
    from byoc_core.runtime.registry import runtimes

    entry = artifact.manifest.modules[index]
    if entry.type_key not in runtimes().names():
        return False
    try:
        return runtimes().get(entry.type_key).check_payload(artifact.payload(index), context)
    except IRTypeError as error:
        raise _uncomputable(artifact, index, error) from error


def _uncomputable(artifact: OpenedArtifact, index: int, error: IRTypeError) -> ArtifactError:
    where = f"{artifact.where}, module {index}"
    return ArtifactError(where, f"a size cannot be computed: {error.problem}")


def _load_module(artifact: OpenedArtifact, index: int, handle: RuntimeHandle, context: LoadContext) -> RuntimeModule:
    entry = artifact.manifest.modules[index]
    try:
        module = handle.load(artifact.payload(index), context)
    except IRTypeError as error:
        raise _uncomputable(artifact, index, error) from error
    if tuple(module.function_names) != entry.functions:
        raise ArtifactError(
            f"{artifact.where}, module {index}",
            "has functions other than declared by the manifest",
            got=", ".join(module.function_names),
            expected=", ".join(entry.functions),
        )
    return module
