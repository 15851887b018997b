"""Take a new user's first steps, in an environment with byoc from an index and without the repository.

::

    python smoke.py --backend ccompiler --extension present

Compiles and runs a small model by a backend, saves, loads and runs it again, and runs `byoc doctor` and `byoc demo`. If
byoc-rt is installed, its library loads the model too.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

import byoc_core
import numpy as np
from byoc_core import script as R
from byoc_core.runtime.extension import extension_status

MODULE = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8, 16), "float32"), w: R.Tensor((8, 16), "float32")):
        h = R.add(x, w)
        y = R.multiply(h, w)
        return y
"""
"""A module taken by every backend."""


def run_byoc(*arguments: str) -> str:
    """Return the printed output of a command."""
    code = "from byoc_core.cli.main import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"byoc {' '.join(arguments)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def load_without_python(file: Path) -> None:
    """Load an artifact by the C runtime, and find its function."""
    import byoc_rt

    library = ctypes.CDLL(str(byoc_rt.library_path()))
    library.byoc_rt_last_error.restype = ctypes.c_char_p
    library.byoc_rt_find_function.restype = ctypes.c_void_p
    program = ctypes.c_void_p()
    status = library.byoc_rt_load(str(file).encode(), None, ctypes.byref(program))
    assert status == 0, library.byoc_rt_last_error().decode()
    assert library.byoc_rt_find_function(program, b"main"), library.byoc_rt_last_error().decode()
    library.byoc_rt_unload(program)


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="host")
    parser.add_argument("--extension", choices=("present", "absent"), required=True)
    parser.add_argument("--site", help="the folder of the installed packages; by default the environment's packages")
    options = parser.parse_args()

    homes = (
        {Path(options.site)} if options.site else {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    )
    assert Path(byoc_core.__file__).parents[1] in homes, f"byoc_core comes from {byoc_core.__file__}"
    is_present, reason = extension_status()
    assert is_present == (options.extension == "present"), f"the C extension: {reason or 'is there'}"

    module = R.parse(MODULE)
    backends = [] if options.backend == "host" else [options.backend]
    executable = byoc_core.build(module, backends=backends)
    if backends:
        executable.require_offload(1.0)
    rng = np.random.default_rng(0)
    # Small integers: sums and products are exact in float32.
    x, w = (rng.integers(-8, 8, (8, 16)).astype(np.float32) for _ in range(2))
    expected = (x + w) * w
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.byoc"
        executable.save(file)
        for ready in (executable, byoc_core.load(file, allow_native=True)):
            np.testing.assert_array_equal(np.asarray(byoc_core.VirtualMachine(ready)["main"](x, w)), expected)
        if find_spec("byoc_rt"):
            load_without_python(file)

    doctor = run_byoc("doctor")
    assert ("run together, in the C extension" in doctor) == is_present, doctor
    assert ("are made one by one, by Python (half a microsecond" in doctor) != is_present, doctor
    assert "No faults found." in doctor, doctor
    demo = run_byoc("demo", *(f"--backend={name}" for name in backends))
    assert "Selections of backends" in demo, demo
    assert all(name in demo for name in backends), demo
    print(f"byoc {byoc_core.__version__} works: {options.backend}, extension {options.extension}")


if __name__ == "__main__":
    main()
