"""Bytes from untrusted sources: any damage raises an error of byoc's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from byoc_core.errors import ArtifactError, ByocError, HookError, PluginError
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import RuntimeModule

from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promises.l3_artifacts.saved import save_examples
from byoc_conformance.subject import Subject

__all__ = ["damaged", "damaged_payloads", "malformed_files"]

_NUM_REGIONS = 24
_NUM_LEAVES = 80
_STRANGE_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "x",
    "\x00",
    [],
    {},
    [[]],
    {"x": 0},
    "nn.relu",
    2**31,
)
_MAX_FAULTS = 3


def damaged_payloads(subject: Subject, case: str) -> None:
    """Check that each damaged payload is refused, or loads.

    Native code is not permitted here, so none of the damaged code runs.
    """
    for saved in save_examples(subject):
        saved.reload()
        generator = np.random.default_rng(subject.spec.seed)
        context = LoadContext(saved.module.constants)
        _try_all(partial(saved.runtime.load, context=context), damaged(saved.payload, generator))


def malformed_files(subject: Subject, case: str) -> None:
    """Check that each file with a mistake, in every format of the runtimes, is refused, or loads."""
    is_covered = False
    for saved in save_examples(subject):
        texts = (saved.payload, saved.module.get_source().encode())
        for format_ in saved.runtime.info().file_formats:
            is_covered = True
            generator = np.random.default_rng(subject.spec.seed)
            read = partial(saved.runtime.load_file, format=format_, context=LoadContext(source="file"))
            _require_loader(read)
            for text in texts:
                _try_all(read, damaged(text, generator))
    if not is_covered:
        raise NotCoveredError("the runtime reads no files")


def _require_loader(read: Callable[[bytes], RuntimeModule]) -> None:
    """Raise :class:`NotCoveredError` if the runtime declares a format and has no hook for files."""
    try:
        read(b"")
    except HookError:
        return
    except PluginError as error:
        raise NotCoveredError(
            f"the runtime names a file format without a loader, as reported by level 0: {error}"
        ) from error
    except ByocError:
        return


def _try_all(attempt: Callable[[bytes], RuntimeModule], cases: Iterator[tuple[str, bytes]]) -> None:
    """Load all cases.

    Raises:
        FailedError: some cases raise an error other than an ``ArtifactError``.
    """
    faults = []
    for name, data in cases:
        try:
            attempt(data)
        except ArtifactError:
            continue
        except ByocError as error:
            faults.append(f"{name}: {type(error).__name__}: {error}")
    if faults:
        first_faults = "\n".join(faults[:_MAX_FAULTS])
        raise FailedError(f"{len(faults)} damaged inputs raise an error other than an ArtifactError:\n{first_faults}")


def damaged(data: bytes, generator: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Yield the data with a single change, each with a description of the change, spread over all regions."""
    yield from (
        ("empty", b""),
        ("a zero byte", b"\0"),
        ("garbage", generator.bytes(64)),
        ("not UTF-8", b"\xff" + data),
    )
    yield from (("twice", data + data), ("with garbage at the end", data + generator.bytes(16)))
    yield "nested deep", b"[" * 100_000
    length = len(data)
    for region in range(_NUM_REGIONS):
        start, end = (length * edge // _NUM_REGIONS for edge in (region, region + 1))
        if start == end:
            continue
        offset = int(generator.integers(start, end))
        bit = 1 << int(generator.integers(8))
        yield f"bit flipped in byte {offset}", data[:offset] + bytes([data[offset] ^ bit]) + data[offset + 1 :]
        yield f"byte {offset} dropped", data[:offset] + data[offset + 1 :]
        yield f"byte {offset} twice", data[:offset] + data[offset : offset + 1] + data[offset:]
        yield f"cut off at byte {offset}", data[:offset]
        yield f"bytes {start} to {end} zeroed", data[:start] + bytes(end - start) + data[end:]
        yield f"bytes {start} to {end} dropped", data[:start] + data[end:]
    yield from _strange_documents(data, generator)


def _strange_documents(data: bytes, generator: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Yield JSON documents with a single value replaced or missing; nothing if the data is no JSON."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    paths = list(_paths(document))
    for index in generator.permutation(len(paths))[:_NUM_LEAVES]:
        path = paths[int(index)]
        value = _STRANGE_VALUES[int(generator.integers(len(_STRANGE_VALUES)))]
        yield f"{path} is {value!r}", json.dumps(_changed(document, path, value)).encode()
        yield f"{path} is missing", json.dumps(_without(document, path)).encode()


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a document, as keys and indices."""
    items: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, item in items:
        yield (*path, key)
        yield from _paths(item, (*path, key))


def _changed(document: Any, path: Sequence[Any], value: Any) -> Any:
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = _changed(copy[path[0]], path[1:], value)
    return copy


def _without(document: Any, path: Sequence[Any]) -> Any:
    copy = dict(document) if isinstance(document, dict) else list(document)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = _without(copy[path[0]], path[1:])
    return copy
