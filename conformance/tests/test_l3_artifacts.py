"""Level 3: its damaged artifacts, and its recognition of pickles."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from byoc_conformance.promises.l3_artifacts.damage import damaged
from byoc_conformance.promises.l3_artifacts.elsewhere import is_pickle

DOCUMENT = json.dumps({"version": 1, "functions": [{"name": f"f{i}", "inputs": list(range(20))} for i in range(8)]})


def test_the_same_seed_does_the_same_damage() -> None:
    first, second = (dict(damaged(DOCUMENT.encode(), np.random.default_rng(3))) for _ in range(2))
    assert first == second


def test_nothing_is_left_as_it_was_but_what_is_valid_by_chance() -> None:
    original = json.loads(DOCUMENT)
    cases = dict(damaged(DOCUMENT.encode(), np.random.default_rng(0)))
    same = [name for name, data in cases.items() if data == DOCUMENT.encode()]
    assert not same
    missing = [json.loads(data) for name, data in cases.items() if name.endswith("is missing")]
    assert len(missing) == 80
    assert original not in missing


def test_every_region_is_damaged() -> None:
    data = bytes(range(240))
    flipped = [case for name, case in damaged(data, np.random.default_rng(0)) if name.startswith("bit flipped")]
    offsets = [next(i for i in range(240) if case[i] != data[i]) for case in flipped]
    assert [offset // 10 for offset in offsets] == list(range(24))


@pytest.mark.parametrize("data", [b"", b"x", b"\x00\x01"])
def test_hardly_any_data_can_be_damaged_too(data: bytes) -> None:
    assert dict(damaged(data, np.random.default_rng(0)))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_one(protocol: int) -> None:
    assert is_pickle(pickle.dumps({"layers": [1, 2.5, "relu"]}, protocol))


@pytest.mark.parametrize("data", [b"", b".", b"\x80", b"N.", DOCUMENT.encode(), b"\x80\x04 is a header", b"\x7fELF."])
def test_other_bytes_are_no_pickle(data: bytes) -> None:
    assert not is_pickle(data)


def test_a_pickle_with_more_behind_it_is_not_a_pickle_as_a_whole() -> None:
    assert not is_pickle(pickle.dumps([1, 2]) + b"\0")
