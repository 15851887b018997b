"""The offload report in an artifact, read at first use."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from byoc_core.artifact.archive import Member, check_crc
from byoc_core.artifact.manifest import decode_report
from byoc_core.artifact.report_packing import unpack_report
from byoc_core.errors import ArtifactError
from byoc_core.runtime.module import RuntimeModule

__all__ = ["COPY_AGAIN", "read_report", "read_report_with_compiler"]

COPY_AGAIN = "Copy the file again, or compile the model again."


def read_report(data: memoryview, manifest: Member, where: str) -> dict[str, Any]:
    """Read the report from the manifest of an artifact.

    Raises:
        ArtifactError: the file was changed after loading.
    """
    mapping = data.obj
    if isinstance(mapping, mmap.mmap) and mapping.size() < manifest.end:  # a read past the end ends the process
        raise ArtifactError(where, "was truncated after loading", hint=COPY_AGAIN)
    check_crc(data, manifest, where)
    return unpack_report(decode_report(bytes(data[manifest.offset : manifest.end]), where))


def read_report_with_compiler(
    read: Callable[[], Mapping[str, Any]], modules: Sequence[RuntimeModule]
) -> Mapping[str, Any]:
    """Read the report of an artifact whose regions of static shapes are compiled at first use.

    Args:
        read: reads the report of the artifact.
        modules: the modules of the artifact.
    """
    from byoc_core.reporting.saved import report_with_compiler
    from byoc_core.runtime.specialised import SpecialisedModule

    return report_with_compiler(read(), [module for module in modules if isinstance(module, SpecialisedModule)])
