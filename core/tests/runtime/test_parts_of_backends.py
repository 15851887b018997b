"""Parts of the calls of a model compiled by each installed backend, and by all together."""

from __future__ import annotations

import byoc_core
import pytest
from byoc_core.backend import backends
from byoc_core.cli.demo_model import make_demo_image, make_demo_model

from core.tests.recorded_parts import check_times, ops_in, record_run, rows_in_regions

pytestmark = pytest.mark.asks_for_plugins


def ready_backends() -> list[str]:
    handles = [backends().get(name) for name in backends().names()]
    return [handle.name for handle in handles if handle.compile_status().ok]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_parts_lie_within_calls_and_each_op_is_in_one_part(num_threads: int) -> None:
    ready = ready_backends()
    assert ready
    for chosen in [*([name] for name in ready), ready, ready[::-1]]:
        executable = byoc_core.build(make_demo_model(), backends=[name for name in chosen if name != "host"])
        (spec,) = executable.functions["main"].inputs
        events = record_run(executable, {spec.name: make_demo_image()}, num_threads=num_threads)
        check_times(events)
        found, rows = ops_in(events), rows_in_regions(executable)
        # The runtime `examplejson` reports no parts; backends may replace a view, and functions in C may lack ops.
        is_complete = {*chosen} <= {"host", "ccompiler", "dnnl"}
        assert {row: found[row] for row in rows if found[row] > 1} == {}, chosen
        if is_complete:
            assert [row for row in rows if not found[row] and row[0] != "reshape"] == [], chosen
