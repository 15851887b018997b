"""The table of peers: other inference engines for ONNX models, measured beside byoc.

A new peer is a module with an entry (:data:`~byoc_core.benchmarking.engine.OpenEngine`) and a row of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from byoc_core.errors import OptionsError, near_names

__all__ = ["BYOC", "BYOC_ENTRY", "BYOC_SETTINGS", "PEERS", "Peer", "choose_peers"]

BYOC = "byoc"
"""The name of byoc among the engines."""
BYOC_ENTRY = "byoc_core.benchmarking.byoc_engine:open_engine"
BYOC_SETTINGS = "bound buffers"


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer.

    Attributes:
        module: the peer's Python module; the peer is installed if the module is found.
        install: the command to install the peer.
        entry: ``"package.module:function"``, an :data:`~byoc_core.benchmarking.engine.OpenEngine`.
        settings: the settings of the peer, for people.
    """

    module: str
    install: str
    entry: str
    settings: str


PEERS: Mapping[str, Peer] = {
    "onnxruntime": Peer(
        "onnxruntime",
        "pip install onnxruntime",
        "byoc_core.benchmarking.onnxruntime_engine:open_engine",
        "CPU, all graph optimisations, sequential, bound buffers",
    ),
    "openvino": Peer(
        "openvino",
        "pip install openvino",
        "byoc_core.benchmarking.openvino_engine:open_engine",
        "CPU, latency, float32, hyper-threads too, shared tensors",
    ),
}
"""The peers by name."""


def choose_peers(
    names: Sequence[str], table: Mapping[str, Peer] | None = None, where: str = "bench, against"
) -> dict[str, Peer]:
    """Return the peers of these names, in order, each once.

    Args:
        names: of peers.
        table: the known peers; by default :data:`PEERS`.
        where: the option with the names, for errors.

    Raises:
        OptionsError: a peer is unknown or not installed.
    """
    table = PEERS if table is None else table
    rows = {}
    for name in names:
        if name not in table:
            hint = near_names(name, table) or None
            raise OptionsError(where, f"`{name}` is not a known engine", expected=", ".join(table), hint=hint)
        if find_spec(table[name].module) is None:
            hint = f"Install the engine: {table[name].install}"
            raise OptionsError(where, f"`{name}` is not installed", hint=hint)
        rows[name] = table[name]
    return rows
