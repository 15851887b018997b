"""The extension is optional: a process without the extension gives the same results."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from byoc_core.runtime.extension import extension, extension_status

pytestmark = pytest.mark.interpreter

SCRIPT = """
import sys
{prelude}
import numpy as np, byoc_core
from byoc_core import script as R
from byoc_core.runtime.extension import extension_status

module = R.parse('''
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        y = R.nn.relu(x)
        return y
''')
vm = byoc_core.VirtualMachine(byoc_core.build(module))
print(vm["main"](np.array([[-1, 2, -3, 4]], np.float32)).tolist(), extension_status())
"""


def run(prelude: str = "", **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(prelude=prelude)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
        timeout=120,
    )
    return done.stdout.strip()


def test_the_environment_switches_it_off() -> None:
    status = (False, "BYOC_NATIVE=0 switches the C extension off")
    assert run(BYOC_NATIVE="0") == f"[[0.0, 2.0, 0.0, 4.0]] {status}"


def test_a_build_without_it_works() -> None:
    assert run("sys.modules['byoc_core._native'] = None") == (
        "[[0.0, 2.0, 0.0, 4.0]] (False, 'the C extension is missing or cannot be loaded: import of byoc_core._native "
        "halted; None in sys.modules')"
    )


@pytest.mark.skipif(extension() is None, reason=extension_status()[1] or "it is there")
def test_it_is_used_where_it_is() -> None:
    assert run(BYOC_NATIVE="1") == "[[0.0, 2.0, 0.0, 4.0]] (True, '')"
