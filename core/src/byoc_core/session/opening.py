"""Opening of models for sessions: an artifact is loaded, a model is compiled once and kept in the cache."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from byoc_core.artifact.executable import Executable
from byoc_core.artifact.loading import OpenedArtifact, load_opened, open_artifact, paused_collection
from byoc_core.errors import ArtifactError, ByocError, OptionsError
from byoc_core.session import compiling
from byoc_core.session.cache import SessionCache
from byoc_core.session.cache_key import NoKeyError, key_of_files, key_of_model

__all__ = ["Opened", "OpeningSettings", "Origin", "open_model", "reopen"]

_LOGGER = logging.getLogger("byoc_core")
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class OpeningSettings:
    """How a model is opened.

    Attributes:
        choices: arguments of :func:`byoc_core.build`; none that is ``None``.
        cache: whether compiled models are kept in the user's cache, or the folder of another cache.
        allow_native: whether native code in an artifact of another user may be loaded.
        num_threads: the number of threads of a call, for placements by cost.
        max_nodes: as for :func:`byoc_core.from_onnx`.
        progress: called with the name of each stage of a compilation.
        states: as for :func:`byoc_core.from_onnx`; pairs are tuples.
        swappable_weights: as for :func:`byoc_core.from_onnx`; names are a tuple.
    """

    choices: Mapping[str, Any]
    cache: bool | str | os.PathLike[str] = True
    allow_native: bool = False
    num_threads: int | None = None
    max_nodes: int | None = None
    progress: Callable[[str], None] | None = None
    states: str | tuple[Any, ...] = ()
    swappable_weights: bool | tuple[str, ...] = False


@dataclass(frozen=True)
class Opened:
    """An opened model.

    Attributes:
        executable: the compiled model.
        path: the artifact with the constants, mapped; ``None`` if the executable is in memory only.
        digest: the identity of the artifact at ``path``; empty without.
        origin: the model, if the artifact is its entry in the cache: entries may be dropped at any time.
    """

    executable: Executable
    path: Path | None = None
    digest: str = ""
    origin: Origin | None = None


@dataclass(frozen=True)
class Origin:
    """The model of an entry in the cache.

    Attributes:
        model: the file.
        key: the key of the entry.
        settings: how the model was opened.
    """

    model: Path
    key: str
    settings: OpeningSettings


def open_model(model: Any, settings: OpeningSettings) -> Opened:
    """Open a model.

    Args:
        model: the path or the bytes of an artifact or of an ONNX model, an ``onnx.ModelProto``, an IR module, or an
            executable.
        settings: how.

    Raises:
        OptionsError: choices for a compilation are given for a compiled model.
        OSError: a file cannot be read.
        ByocError: see :func:`byoc_core.load`, :func:`byoc_core.from_onnx` and :func:`byoc_core.build`.
    """
    if isinstance(model, Executable):
        _refuse_choices("an executable", settings)
        return Opened(model)
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        with path.open("rb") as file:
            is_artifact = file.read(len(_ZIP)) == _ZIP
        if not is_artifact:
            return _open_through_cache(path, settings)
        _refuse_choices(f"the artifact `{path}`", settings)
        return _load(path, allow_native=settings.allow_native, compiler=None)
    if isinstance(model, bytes) and model.startswith(_ZIP):
        _refuse_choices("an artifact", settings)
        return Opened(_load_bytes(model, allow_native=settings.allow_native))
    return Opened(_build(model, settings))


def reopen(path: Path, digest: str, origin: Origin | None) -> Opened:
    """Open an artifact known by its digest, with its native code, allowed before.

    Args:
        path: the artifact.
        digest: its identity.
        origin: the model, if the artifact is an entry in the cache: if the entry is gone, the model is opened again.

    Raises:
        OSError: the file cannot be read.
        ArtifactError: the file is another artifact now, or is damaged; or the entry in the cache is gone, and the
            model, the plugins or the environment have changed.
    """
    if origin is None:
        return _load(path, allow_native=True, compiler=None, digest=digest)
    try:
        return _load(path, allow_native=True, compiler=compiling.compile_sizes, digest=digest, origin=origin)
    except (OSError, ArtifactError):
        opened = open_model(origin.model, origin.settings)
    if opened.origin is None or opened.origin.key != origin.key:
        raise ArtifactError(
            f"artifact `{path}`",
            f"is gone from the cache, and cannot be made again: the model `{origin.model}`, the plugins or the"
            " environment have changed",
        )
    return opened


def _load_bytes(data: bytes, *, allow_native: bool) -> Executable:
    opened = OpenedArtifact.open(memoryview(data), "artifact")
    return load_opened(opened, allow_native=allow_native)


def _load(
    path: Path,
    *,
    allow_native: bool,
    compiler: Callable[..., Any] | None,
    digest: str = "",
    origin: Origin | None = None,
) -> Opened:
    with paused_collection():
        opened = open_artifact(path)
        found = opened.digest
        if digest and found != digest:
            raise ArtifactError(opened.where, "is another artifact than before", got=found, expected=digest)
        executable = load_opened(opened, allow_native=allow_native, compiler=compiler)
    return Opened(executable, path.absolute(), found, origin)


def _refuse_choices(subject: str, settings: OpeningSettings) -> None:
    names = [*settings.choices, *(["max_nodes"] if settings.max_nodes is not None else [])]
    names += ["states"] if settings.states else []
    names += ["swappable_weights"] if settings.swappable_weights else []
    if names:
        raise OptionsError("session", f"{', '.join(names)}: {subject} is compiled already")


def _build(model: Any, settings: OpeningSettings) -> Executable:
    return compiling.build_model(
        model,
        settings.choices,
        num_threads=settings.num_threads,
        max_nodes=settings.max_nodes,
        progress=settings.progress,
        states=settings.states,
        swappable_weights=settings.swappable_weights,
    )


def _open_through_cache(model: Path, settings: OpeningSettings) -> Opened:
    if settings.cache is False or compiling.has_registered_operators():
        return Opened(_build(model, settings))
    cache = SessionCache(None if settings.cache is True else settings.cache)
    try:
        model_key = key_of_model(model, _all_choices(settings), settings.num_threads)
    except NoKeyError as reason:
        _LOGGER.info("session: the compiled model `%s` is not kept in the cache: %s", model, reason)
        return Opened(_build(model, settings))
    found = _find(cache, model, model_key, settings)
    if found is not None:
        return found
    executable = _build(model, settings)
    return _keep(cache, model, model_key, executable, settings) or Opened(executable)


def _all_choices(settings: OpeningSettings) -> dict[str, Any]:
    if settings.choices.get("dump") is not None:
        raise NoKeyError("`dump` asks for the modules of every pass")
    placement = settings.choices.get("placement")
    files = {"placement": Path(placement)} if isinstance(placement, str) else {}
    states = {"states": settings.states} if settings.states else {}
    weights = {"swappable_weights": settings.swappable_weights} if settings.swappable_weights else {}
    return {**settings.choices, **files, **states, **weights, "max_nodes": settings.max_nodes}


def _find(cache: SessionCache, model: Path, model_key: str, settings: OpeningSettings) -> Opened | None:
    """Return the compiled model of the cache, if there is a sound one and no more backend can compile than before."""
    names = cache.facts(model_key).get("external_files")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    try:
        key = key_of_files(model_key, model.parent, names)
    except OSError:  # the import says which file is missing
        return None
    path = cache.find(key)
    if path is None:
        return None
    facts = cache.facts(key)
    unable = facts.get("unable_backends")
    if not isinstance(unable, list) or (unable and compiling.unable_backends(unable, _options(settings)) != unable):
        return None
    try:
        return _load_entry(path, model, key, settings, digest=str(facts.get("digest")))
    except (ByocError, OSError) as error:
        _LOGGER.warning("session: an entry of the cache cannot be loaded, and the model is compiled again: %s", error)
        return None


def _keep(
    cache: SessionCache, model: Path, model_key: str, executable: Executable, settings: OpeningSettings
) -> Opened | None:
    """Store a compiled model and load it from the cache, with its constants mapped; ``None`` if this fails."""
    try:
        names = compiling.list_external_files(model)
        if key_of_model(model, _all_choices(settings), settings.num_threads) != model_key:
            return None  # changed during the compilation: the executable may be of either file
        key = key_of_files(model_key, model.parent, names)
        path = cache.put(key, lambda target: executable.save(target, respecializable=True))
        opened = _load_entry(path, model, key, settings)
        facts = {
            "source": str(model.absolute()),
            "digest": opened.digest,
            "unable_backends": compiling.unable_backends(_backend_names(settings), _options(settings)),
        }
        for facts_key, found in ((key, facts), (model_key, {"external_files": list(names)})):
            cache.put_facts(facts_key, {**cache.facts(facts_key), **found})  # both keys are one without such files
        return opened
    except (ByocError, OSError) as error:
        _LOGGER.warning("session: the compiled model cannot be kept in the cache: %s", error)
        return None


def _load_entry(path: Path, model: Path, key: str, settings: OpeningSettings, digest: str = "") -> Opened:
    origin = Origin(model.absolute(), key, replace(settings, progress=None))
    return _load(path, allow_native=False, compiler=compiling.compile_sizes, digest=digest, origin=origin)


def _backend_names(settings: OpeningSettings) -> list[str] | None:
    """Return the names of the chosen backends; ``None`` for all installed backends."""
    request = settings.choices.get("request")
    backends = settings.choices.get("backends", None if request is None else request.backends)
    return None if backends is None or "auto" in backends else [*backends]


def _options(settings: OpeningSettings) -> Mapping[str, Any]:
    request = settings.choices.get("request")
    found: Mapping[str, Any] = settings.choices.get("options") or ({} if request is None else request.options)
    return found
