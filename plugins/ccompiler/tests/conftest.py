"""Benches for functions compiled by direct calls of the backend's hooks."""

from __future__ import annotations

import pytest

from plugins.ccompiler.tests.bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture(scope="module")
def module_bench() -> Bench:
    return Bench()
