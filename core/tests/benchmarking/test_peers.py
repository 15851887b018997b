"""The table of peers: choice, and errors."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest
from byoc_core.benchmarking import PEERS, Peer
from byoc_core.benchmarking.peers import BYOC_ENTRY, choose_peers
from byoc_core.errors import OptionsError

TABLE = {
    "one": Peer("numpy", "pip install numpy", "m:f", ""),
    "two": Peer("no_such_engine", "pip install two", "m:f", ""),
}


def test_peers_are_chosen_once_and_in_order() -> None:
    other = replace(TABLE["one"], settings="x")
    assert list(choose_peers(["three", "one", "three"], {**TABLE, "three": other})) == ["three", "one"]
    assert choose_peers([], TABLE) == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("two", "--against: `two` is not installed. Install the engine: pip install two"),
        ("on", "--against: `on` is not a known engine; expected one, two. Did you mean 'one'?"),
        ("", "--against: `` is not a known engine; expected one, two"),
    ],
)
def test_other_peers_are_errors(name: str, text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        choose_peers(["one", name], TABLE, "--against")
    assert str(caught.value) == text


@pytest.mark.parametrize("entry", [BYOC_ENTRY, *(peer.entry for peer in PEERS.values())])
def test_entries_import_without_the_engine(entry: str) -> None:
    module, _, name = entry.partition(":")
    assert callable(getattr(import_module(module), name))
