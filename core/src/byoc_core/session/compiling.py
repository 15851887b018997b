"""The door of a session to the compile side: models become executables. Everything is imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc_core.errors import OptionsError, PluginError
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.threads import enter_call, leave_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from byoc_core.artifact.executable import Executable

__all__ = ["build_model", "compile_sizes", "has_registered_operators", "list_external_files", "unable_backends"]


def build_model(
    model: Any,
    choices: Mapping[str, Any],
    *,
    num_threads: int | None,
    max_nodes: int | None,
    progress: Callable[[str], None] | None,
    states: str | Sequence[Any] = (),
    swappable_weights: bool | Sequence[str] = False,
) -> Executable:
    """Import and compile a model.

    Args:
        model: an IR module, or everything taken by :func:`byoc_core.from_onnx`.
        choices: arguments of :func:`byoc_core.build`.
        num_threads: the number of threads of a call, for placements by cost.
        max_nodes: as for :func:`byoc_core.from_onnx`.
        progress: called with the name of each stage at the beginning of the stage.
        states: as for :func:`byoc_core.from_onnx`.
        swappable_weights: as for :func:`byoc_core.from_onnx`.

    Raises:
        ByocError: see :func:`byoc_core.from_onnx` and :func:`byoc_core.build`.
    """
    with _compile_side():
        from byoc_core.driver import build
        from byoc_core.frontend.onnx import from_onnx
        from byoc_core.ir import IRModule
    if not isinstance(model, IRModule):
        if progress is not None:
            progress("import")
        model = from_onnx(model, max_nodes=max_nodes, states=states, swappable_weights=swappable_weights)
    elif max_nodes is not None or states or swappable_weights:
        name = "max_nodes" if max_nodes is not None else "states" if states else "swappable_weights"
        raise OptionsError(name, "does not apply to an imported module")
    token = None if num_threads is None else enter_call(num_threads)
    try:
        return build(model, progress=progress, **choices)
    finally:
        if token is not None:
            leave_call(token)


def compile_sizes(*arguments: Any) -> RuntimeModule | Any:
    """Compile a region of a loaded artifact for more sizes; the ``compiler`` of :func:`byoc_core.load`."""
    with _compile_side():
        from byoc_core.backend.size_compiler import compiler
    return compiler()(*arguments)


def list_external_files(model: Path) -> tuple[str, ...]:
    """Return the names of a model's files with external data, relative to the folder of the model.

    Raises:
        FrontendError: the file cannot be read, or is no ONNX model.
    """
    from byoc_core.frontend.onnx.external_files import external_files

    return external_files(model)


def has_registered_operators() -> bool:
    """Return whether this process registered operators by :func:`byoc_core.register_op`: code without a digest."""
    module = sys.modules.get("byoc_core.frontend.importers")
    return module is not None and bool(module.importers().has_registered)


def unable_backends(names: Sequence[str] | None, options: Mapping[str, Any]) -> list[str]:
    """Return the backends unable to compile on this machine at present.

    Args:
        names: the backends; all installed backends for ``None``.
        options: the options of backends, by name.
    """
    from byoc_core.backend.registry import backends

    registry = backends()
    unable = []
    for name in registry.names() if names is None else names:
        try:
            handle = registry.get(name)
            is_able = handle.compile_status(handle.context(None, options.get(name, {}))).ok
        except PluginError:
            is_able = False
        if not is_able:
            unable.append(name)
    return unable


@contextmanager
def _compile_side() -> Iterator[None]:
    """Explain a missing compile side: an installation may hold the run side alone."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("byoc_core."):
            raise
        raise OptionsError(
            "session",
            "cannot compile a model: this installation of byoc-core has no compiler",
            hint="Compile the model elsewhere (`byoc compile`), and open the artifact.",
        ) from error
