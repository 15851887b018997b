"""A fresh process has imported nothing, and reports errors."""

from __future__ import annotations

import json

import pytest
from byoc_conformance.fresh_process import compile_side, run_in_fresh_process
from byoc_conformance.outcome import FailedError
from byoc_core.plugin import PluginRecord

pytestmark = pytest.mark.interpreter


def test_it_has_imported_nothing_of_ours() -> None:
    printed = run_in_fresh_process("print(json.dumps([m for m in sys.modules if 'byoc' in m]))", timeout=60.0)
    assert json.loads(printed) == []


def test_it_imports_from_where_this_process_does_and_sees_arguments_and_variables() -> None:
    code = "import os, byoc_conformance.outcome as o; print(o.Status.PASSED, sys.argv[2], os.environ['BYOC_TRIED'])"
    printed = run_in_fresh_process(code, "a b", timeout=60.0, environment={"BYOC_TRIED": "yes"})
    assert printed == "passed a b yes\n"


def test_errors_of_the_process_are_raised() -> None:
    with pytest.raises(FailedError) as caught:
        run_in_fresh_process("raise SystemExit('the driver is missing')", timeout=60.0)
    assert str(caught.value) == "a fresh process ended with 1:\nthe driver is missing"


def test_it_does_not_wait_for_ever() -> None:
    with pytest.raises(FailedError) as caught:
        run_in_fresh_process("import time; time.sleep(60)", timeout=0.2)
    assert str(caught.value) == "a fresh process did not end within 0.2 s"


def test_what_is_left_does_not_keep_a_process_but_where_it_is_to_end_by_itself() -> None:
    code = "import threading; threading.Thread(target=threading.Event().wait).start(); print('done')"
    assert run_in_fresh_process(code, timeout=60.0) == "done\n"
    with pytest.raises(FailedError) as caught:
        run_in_fresh_process(code, timeout=3.0, ends_by_itself=True)
    assert str(caught.value) == "a fresh process did not end within 3 s"


@pytest.mark.parametrize(
    ("compile_half", "run_half", "own"),
    [
        ("npu.backend", "npu.runtime", ("npu.backend",)),
        ("npu.backend:plugin", "npu.runtime:plugin", ("npu.backend",)),
        ("npu", "npu_runtime", ("npu",)),
        ("npu", "npu.runtime", ()),  # importing `npu.runtime` imports `npu`
        ("npu:backend", "npu:runtime", ()),
        ("", "npu.runtime", ()),  # a plugin object
    ],
)
def test_the_compile_side_is_what_the_run_half_is_not_in(
    compile_half: str, run_half: str, own: tuple[str, ...]
) -> None:
    backend, runtime = (PluginRecord("npu", "", value, "", "") for value in (compile_half, run_half))
    assert compile_side(backend, runtime) == ("byoc_core.ir", "byoc_core.backend", *own)
