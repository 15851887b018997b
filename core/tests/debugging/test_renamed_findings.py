"""Deprecated names of the findings of regions: the old names work, with a warning."""

from __future__ import annotations

import pytest
from byoc_core import debugging


@pytest.mark.parametrize(("old", "new"), [("Finding", "RegionFinding"), ("CODES", "REGION_FINDING_CODES")])
def test_an_old_name_is_the_new_object(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match="is deprecated since") as caught:
        found = getattr(debugging, old)
    assert found is getattr(debugging, new)
    (warning,) = caught
    assert str(warning.message) == (
        f"`byoc_core.debugging.{old}` is deprecated since byoc-core 0.2 and will be removed in 0.4: "
        f"use `byoc_core.debugging.{new}`."
    )
    assert warning.filename == __file__


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'byoc_core\.debugging' has no attribute 'Findings'$"):
        getattr(debugging, "Findings")  # noqa: B009 - mypy knows that the name is absent
