"""Sessions running the tests of the packages, on different Pythons, with more or less installed."""

from __future__ import annotations

from pathlib import Path

import nox

from sessions.interpreters import MAIN, OTHER_VERSIONS, PYTHONS, THIRD, answers
from sessions.marks import select
from sessions.packages import PACKAGES, ROOT, WITH_PEERS, group, install_peers, install_wheels, wheel
from sessions.running import count_workers, run_tests

TESTS = tuple(f"{folder}/tests" for folder in PACKAGES.values())


@nox.session(python=PYTHONS[0], requires=["wheels"], reuse_venv=False)
def minimums(session: nox.Session) -> None:
    """Run tests with the lowest version of each dependency permitted by the packages, on the oldest Python."""
    if session.venv_backend != "uv":
        session.error('only uv finds the lowest versions: pip install "nox[uv]"')
    files = {name: nox.project.load_toml(ROOT / folder / "pyproject.toml") for name, folder in PACKAGES.items()}
    lines = {line for file in files.values() for line in file["project"]["dependencies"]}
    lines |= set(files["core"]["project"]["optional-dependencies"]["onnx"])
    lowest = sorted(line for line in lines if not line.startswith("byoc-"))
    # The dependencies of a wheel do not count as named, so they are named here.
    session.install("--resolution", "lowest-direct", *lowest, *(str(wheel(name)) for name in PACKAGES))
    # Installed versions stay: the newest test requirements may need newer ones, older releases of these do not.
    constraints = Path(session.virtualenv.location) / "lowest.txt"
    frozen = session.run("uv", "pip", "freeze", external=True, silent=True)
    constraints.write_text("".join(line + "\n" for line in str(frozen).splitlines() if "==" in line), "utf-8")
    session.install("--constraint", str(constraints), *group("test"), "onnxruntime>=1.20")
    session.run("uv", "pip", "list", external=True)
    # The kit's schema is written by the newest pydantic; older ones spell the same differently.
    schema = "conformance/tests/report/test_model.py::test_the_shipped_schema_is_that_of_the_model"
    # ccompiler calls no other package; compilation is the work of the C compiler.
    tests = select("interpreter", "lowest", folders=tuple(f for f in TESTS if f != f"{PACKAGES['ccompiler']}/tests"))
    run_tests(session, f"--deselect={schema}", *([] if session.posargs else tests))


@nox.session(requires=["wheels"])
def floors(session: nox.Session) -> None:
    """Check the imports between modules, the cost of a bare import, and the content of the wheels."""
    install_wheels(session, tuple(PACKAGES), *group("test"))
    run_tests(session, "core/tests/architecture")


COMPANIONS = {
    "cblas": ("ccompiler",),
    "dnnl": ("ccompiler", "rt"),
    "msops": ("ccompiler",),
    "opencl": ("ccompiler",),
    "rt": ("ccompiler", "examplejson", "conformance"),
}
"""Packages used by the tests of another package: backends sharing a function, or making models for a runtime."""


def add_tests(package: str) -> None:
    """Add the test sessions of a package, one for each Python."""
    # Core's seed scenarios run for every installed backend, so its environment holds all plugins.
    names = tuple(PACKAGES) if package == "core" else ("core", package, *COMPANIONS.get(package, ()))

    @nox.session(python=PYTHONS, name=f"tests-{package}", requires=["wheels"], tags=["matrix"])
    def tests(session: nox.Session) -> None:
        """Run the tests of the package against its installed wheel."""
        install_wheels(session, names, *group("test"))
        if package in WITH_PEERS:
            install_peers(session)
        run_tests(session, f"{PACKAGES[package]}/tests")


for _package in PACKAGES:
    add_tests(_package)


@nox.session(python=OTHER_VERSIONS, requires=["wheels"])
def pythons(session: nox.Session) -> None:
    """Run the tests of all packages with outcomes that may differ between Pythons, beside threads of numpy's BLAS."""
    install_wheels(session, tuple(PACKAGES), *group("test"))
    install_peers(session)
    run_tests(session, *select("interpreter", folders=TESTS), OPENBLAS_NUM_THREADS="2")


@nox.session(python=THIRD if answers(THIRD) else MAIN, name="core-alone", requires=["wheels"])
def core_alone(session: nox.Session) -> None:
    """Run core's tests of the search for plugins, without any plugin installed."""
    install_wheels(session, ("core",), *group("test"))
    install_peers(session)
    session.run("python", "-c", "import byoc_core; assert byoc_core.backends.names() == ('host',)")
    run_tests(session, *select("asks_for_plugins", folders=("core/tests",)))


def add_foreign(name: str, modules: str) -> None:
    """Add a session loading exported libraries in another program; no test is skipped there for want of the program."""

    @nox.session(name=name, requires=["wheels"])
    def foreign(session: nox.Session) -> None:
        """Load exported libraries in the real package, and call the libraries."""
        install_wheels(session, ("core", "ccompiler", "rt"), *group("test", name))
        session.run("python", "-c", f"import {modules}")
        run_tests(session, *select("libraries", folders=("core/tests", "plugins/ccompiler/tests", "rt/tests")))


add_foreign("tvm-ffi", "tvm_ffi")
add_foreign("tvm", "tvm, tvm_ffi")


@nox.session(requires=["wheels"])
def cuda(session: nox.Session) -> None:
    """Compile printed CUDA by NVRTC from PyPI (90 MB, for Linux), and run the code if a device is present."""
    install_wheels(session, ("core",), *group("test", "cuda"))
    run_tests(session, *select("cuda", folders=("core/tests",)))


@nox.session(requires=["wheels"])
def zig(session: nox.Session) -> None:
    """Run the tests of ccompiler and of the toolchain, with ``zig cc`` from PyPI as the only compiler.

    Not among the defaults: zig takes twice as long as gcc, and builds its C libraries for other machines first.
    """
    install_wheels(session, ("core", "ccompiler"), *group("test"), zig=True)
    compiler = f"{Path(session.bin) / 'python'} -m ziglang cc"
    environment = {"BYOC_TEST_INSTALLED": "1", "BYOC_CC": compiler}
    tests = session.posargs or ["core/tests/native", "plugins/ccompiler/tests"]
    session.run("pytest", "-n", count_workers(session), *tests, env=environment)


@nox.session(requires=["wheels"])
def processors(session: nox.Session) -> None:
    """Run generated C on vectors of every width of a table: x86-64's on this machine, NEON's and SVE's under qemu.

    ``nox -s processors -- -k sve256`` takes a single width. Not among the defaults: each takes a minute, and zig builds
    its C library first.
    """
    install_wheels(session, ("core", "ccompiler"), *group("test"), zig=True)
    # zig takes minutes for its C library: no reason to print the stacks of all threads.
    run_tests(session, "-o", "faulthandler_timeout=1800", f"{PACKAGES['ccompiler']}/tests/processors/checks.py")
