"""The path of the graph document before 0.2: the same names, with a warning showing the new place."""

from __future__ import annotations

import pytest
from byoc_core.runtime import graph_document
from byoc_core.runtime.graph import document

pytestmark = pytest.mark.interpreter

MESSAGE = (
    "`byoc_core.runtime.graph_document` is deprecated since byoc-core 0.2 and will be removed in 0.4: "
    "use `byoc_core.runtime.graph.document`."
)


def test_the_old_path_has_the_same_names_and_warns_at_the_line_that_uses_one() -> None:
    assert graph_document.__all__ == document.__all__
    for name in document.__all__:
        with pytest.warns(DeprecationWarning, match="is deprecated since") as told:
            found = getattr(graph_document, name)
        assert found is getattr(document, name)
        assert [(str(warning.message), warning.filename) for warning in told] == [(MESSAGE, __file__)]


def test_a_name_that_it_never_had_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
        getattr(graph_document, "NoSuchName")  # noqa: B009 - mypy knows that the name is absent
