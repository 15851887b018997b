"""What `nox` runs: lint, types, and the tests of each package against its installed wheel.

``nox`` alone runs everything that must be green; ``nox -l`` lists the sessions; ``nox -s tests-core-3.13 -- -k dims``
runs a part of one. The Python that runs nox runs all tests, with all plugins. The farthest from it runs those whose
outcome may hang on the interpreter or its numpy (``pythons``, the mark ``interpreter``). The third runs core's tests
that ask what is installed, without plugins (``core-alone``, the mark ``asks_for_plugins``).
``nox -t matrix`` runs all tests on each Python.

``nox -s demo`` does the main job of the README. Not among the default ones are ``nox -s floors``, ``nox -s tvm-ffi``
and ``nox -s site``, parts of others that are quick alone, ``nox -s partition-laws``, which tries partition on many
random graphs, ``nox -s fuzz``, which loads and runs mutants of artifacts, ``nox -s thorough``, which holds all
properties to more examples and the kit to all faults, ``nox -s sanitizers``, which runs the C extensions' tests under
gcc's sanitizers, ``nox -s sanitized-c``, which runs generated C under them, ``nox -s mutation``, which changes the
code and counts the changes that no test notices, ``nox -s zig``, which compiles all that ccompiler's tests generate
by zig, ``nox -s release``, which builds and checks what a package index takes (``-- --rehearse`` before all that a
release needs is there), and ``nox -s minimums``, which tries the oldest dependencies.

Where nox finds uv (``pip install "nox[uv]"``), that makes the environments, else pip. They are reused between runs
(``nox --reuse-venv=no`` makes them anew), as is what C compilers made (``out/build-cache``, by a key of all that goes
into it); byoc's own wheels are always built and installed afresh. ``nox -s conformance`` leaves the kit's reports in
``out/conformance``. The sessions themselves are in the folder ``sessions``.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"

sys.path.insert(0, str(Path(__file__).parent))
from sessions.interpreters import FARTHEST, MAIN  # noqa: E402 - beside this file, where nox does not look
from sessions.packages import PACKAGES  # noqa: E402
from sessions.running import prepare_environment  # noqa: E402
from sessions.skips import list_at_the_end  # noqa: E402

# `nox -l` lists the sessions in this order.
for _module in ("checks", "testing", "pages", "searches", "acceptance"):
    import_module(f"sessions.{_module}")

nox.options.sessions = [
    "lint",
    "types",
    "packaging",
    *(f"tests-{name}-{MAIN}" for name in PACKAGES),
    f"pythons-{FARTHEST}",
    "core-alone",
    "conformance",
    "tvm",
    "cuda",
    "versions",
    "docs",
    "demo",
]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = os.environ.get("NOX_DEFAULT_VENV_BACKEND", "uv|virtualenv")
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False  # shown as skipped in nox's closing list

list_at_the_end()
prepare_environment()
