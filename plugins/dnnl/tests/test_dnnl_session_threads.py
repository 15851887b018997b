"""The number of threads of a session reaches oneDNN, also if the session is the first use of byoc in a process."""

from __future__ import annotations

import sys

import pytest

from core.tests.fresh_process import answer_of

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(sys.platform != "linux", reason="counts threads by /proc"),
]

SCRIPT = """
import json, os
import numpy as np
import byoc_core

module = byoc_core.parse('''
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 64, 28, 28), "float32"), w: R.Tensor((64, 64, 3, 3), "float32")):
        y = R.nn.conv2d(x, w, padding=(1, 1))
        return y
''')
x, w = np.ones((1, 64, 28, 28), "float32"), np.ones((64, 64, 3, 3), "float32")
session = byoc_core.Session(module, backends=["dnnl"], fallback="error", num_threads=NUMBER)
before = len(os.listdir("/proc/self/task"))
for _ in range(3):
    session(x, w)
print(json.dumps(len(os.listdir("/proc/self/task")) - before))
"""


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("switch", ["0", "1"])
def test_a_call_wakes_as_many_workers_as_the_session_permits(number: int, switch: str) -> None:
    environment = {"BYOC_NUM_THREADS": "4", "BYOC_NATIVE": switch}
    assert answer_of(SCRIPT.replace("NUMBER", str(number)), environment=environment) == number - 1
