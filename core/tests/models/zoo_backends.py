"""The backends for tests of the zoo's networks."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

import byoc_core
from byoc_core.backend import BackendHandle
from byoc_core.backend import backends as installed_backends

from benchmarks.zoo.graph_builder import STYLES

__all__ = ["HOST", "OPTIMISED", "choose_trials", "dynamic_backends", "list_backends", "result_options"]

HOST = "host"
OPTIMISED: Collection[tuple[str, str]] = {("bert", "exported17"), ("efficientnet", "exported17")}
"""Networks and styles built as users build models, with optimised C, on every backend."""
_IS_THOROUGH = os.environ.get("BYOC_EXAMPLES") == "thorough"


def dynamic_backends() -> list[str]:
    """Return the installed backends for networks, with symbolic sizes, and able to compile here; and the host.

    A backend that takes only its own ops takes nothing of a network.
    """
    handles = map(installed_backends().get, byoc_core.backends.names())
    return [
        handle.name
        for handle in handles
        if handle.info().dynamic_shapes and handle.compile_status().ok and not _takes_own_ops_only(handle)
    ]


def choose_trials(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return networks with a style and a backend: the host runs every style, each backend a style of every network.

    The importer and the passes before partition see all differences of the styles. The backends take turns: for a
    network, two neighbouring backends have other styles. ``nox -s thorough`` runs every style on every backend.
    """
    styles = tuple(STYLES)
    return [
        (name, style, backend)
        for turn, backend in enumerate(dynamic_backends())
        for number, name in enumerate(names)
        for style in styles
        if _IS_THOROUGH
        or backend == HOST
        or style == styles[(number + turn) % len(styles)]
        or (name, style) in OPTIMISED
    ]


def list_backends(backend: str) -> list[str]:
    """Return the argument ``backends`` of a build for a backend, or for the host."""
    return [] if backend == HOST else [backend]


def result_options(backend: str) -> Mapping[str, Mapping[str, object]]:
    """Return the options of a build tested for results only: without optimisation by the C compiler.

    The C compiler optimises a network for longer than all runs take. ``nox -s thorough`` optimises all networks.
    """
    model = installed_backends().get(backend).info().options
    if _IS_THOROUGH or model is None or "opt_level" not in model.model_fields:
        return {}
    return {backend: {"opt_level": 0}}


def _takes_own_ops_only(handle: BackendHandle) -> bool:
    module = byoc_core.script.parse("def main(x: R.Tensor((2,))):\n    y = R.add(x, x)\n    return y")
    share = byoc_core.explain(module, [handle.name]).report_data["offloaded_share"]
    return bool(handle.ops()) and share == 0
