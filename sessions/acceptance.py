"""Sessions checking whole programs against the promises: the kit, properties at length, old wheels, the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import nox

from sessions.packages import BACKENDS, DIST, EXAMPLES, PACKAGES, group, install_peers, install_wheels
from sessions.running import KIT_EXAMPLES, REPORTS, count_workers, keeps_promises

FIRST_TOGETHER = ("ccompiler", "dnnl")
"""The backends asked before the others: the kit's functions are claimed as a whole by the first backend."""


_UNOPTIMISED = ("L1-*-compile*", "L2-op[*]", "L2-layouts[*]", "L2-random-graphs*")
"""Tests of generated C without optimisation by gcc: of all pairs of attributes, axis orders, random graphs, and of the
acceptance of C by the compiler.
"""

_OPTIMISED = ("ccompiler", "cblas", "opencl")
"""The packages with tests of unoptimised code by default, and of optimised code in ``nox -s thorough``."""

_UNOPTIMISED_KERNELS = {"PYOPENCL_BUILD_OPTIONS": "-cl-opt-disable"}
"""PoCL optimises kernels for longer than the kernels run."""


def _optimise_partly(backend: str) -> Mapping[str, Sequence[str]]:
    """Return the runs of a backend with optimised C, except for the unoptimised tests."""
    unoptimised = tuple(word for tests in _UNOPTIMISED for word in ("--only", tests))
    return {
        backend: tuple(word for tests in _UNOPTIMISED for word in ("--except", tests)),
        f"{backend}-unoptimised": (*unoptimised, "--option", "opt_level=0"),
    }


PARTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "cblas": _optimise_partly("cblas"),
    "ccompiler": _optimise_partly("ccompiler"),
    "opencl": {"opencl": ("--except", "L2-op[*]")},
}
"""Runs of the kit by folder of the report, for a backend with several runs or without some promises.

gcc optimises the C of all pairs of attributes for four minutes, and of the other unoptimised tests for two. Optimised C
of all ops is judged on ONNX's cases, patterns, offered schedules, blocks and dynamic sizes; ``nox -s thorough`` judges
optimised C in all tests.
PoCL compiles the kernels of all pairs for five minutes; the plugin's tests compute a case of each op. All kernels are
compiled without optimisation, except in ``nox -s thorough``.
"""


@nox.session(requires=["wheels"])
def conformance(session: nox.Session) -> None:
    """Run the conformance kit on the host and all plugins, alone and together, on the examples and on new backends.

    ``nox -s conformance -- ccompiler`` runs the kit on one backend alone, ``-- packages`` on backends outside byoc.
    Plugins together are checked for saving and execution, with the backends of most ops before the others;
    ``nox -s thorough`` has each backend before the others, and checks declarations, partition and numbers too.
    """
    install_wheels(session, tuple(PACKAGES), "pip", *group("test", "lint", "types"))
    subjects = session.posargs or ["host", *BACKENDS, "together", "packages"]
    broken = []
    for name in ("host", *BACKENDS):
        for folder, choice in PARTS.get(name, {name: ()}).items():
            if name not in subjects:
                continue
            if not keeps_promises(session, name, *choice, folder=folder, variables=_UNOPTIMISED_KERNELS):
                broken.append(folder)
    if "together" in subjects:
        for name in FIRST_TOGETHER:
            kit_options = [f"--with={other}" for other in BACKENDS if other != name]
            kit_options += [f"--level={level}" for level in ("L3", "L4")]
            folder = f"{name}-with-others"
            if not keeps_promises(session, name, *kit_options, folder=folder, variables=_UNOPTIMISED_KERNELS):
                broken.append(f"{name} with others")
    if "packages" in subjects:
        counts = ("--jobs", count_workers(session), "--examples", str(KIT_EXAMPLES))
        trial = ("conformance/tests/new_backend_trial.py", "--reports", str(REPORTS), *counts, *map(str, EXAMPLES))
        session.run("python", *trial)
    if broken:
        session.error(f"promises are broken: {', '.join(broken)}; the reports are in {REPORTS}")


@nox.session(requires=["wheels"])
def thorough(session: nox.Session) -> None:
    """Run properties and the kit on more random examples, all faults of the kit, more calls, and plugins together.

    C and kernels are optimised in all tests of ccompiler, cblas, opencl and the zoo's networks. Every backend runs the
    zoo's networks in all styles, and every opset all cases.
    """
    install_wheels(session, tuple(PACKAGES), *group("test"))
    install_peers(session)
    folders = [f"{folder}/tests" for name, folder in PACKAGES.items() if name not in _OPTIMISED]
    environment = {"BYOC_TEST_INSTALLED": "1", "BYOC_EXAMPLES": "thorough"}
    session.run("pytest", "-n", count_workers(session), "-m", "hypothesis", *folders, *session.posargs, env=environment)
    soaks = ("core/tests/vm/test_soak.py", "plugins/dnnl/tests/test_dnnl_memory.py")
    optimised = ("core/tests/models", *(f"{PACKAGES[name]}/tests" for name in _OPTIMISED))
    all_cases = ("conformance/tests/test_fakes.py", "core/tests/frontend/test_onnx_ops_data_sizes.py")
    unfiltered = (*all_cases, *soaks, *optimised)
    session.run("pytest", "-n", count_workers(session), *unfiltered, env=environment)
    session.run("python", "-m", "conformance.tests.planted_faults", "--jobs", count_workers(session))
    for name in ("host", *BACKENDS):
        for kit_options in ([], [f"--with={other}" for other in BACKENDS if other != name]):
            folder = f"{name}-{'with-others-' if kit_options else ''}thorough"
            if not keeps_promises(session, name, *kit_options, folder=folder, examples=20):
                session.error(f"promises are broken: the report is in {REPORTS / folder}")


@nox.session(requires=["wheels"])
def versions(session: nox.Session) -> None:
    """Mix the last published wheels with the wheels of this checkout: a misfit is an error text, never a traceback."""
    install_wheels(session, ("core",), "pip", *group("test"))
    session.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "byoc-core")  # its dependencies stay
    session.run("pytest", "-n", count_workers(session), "published", *session.posargs, env={"BYOC_WHEELS": str(DIST)})


@nox.session(requires=["wheels"])
def demo(session: nox.Session) -> None:
    """Train on handwritten digits, compile, save, and run the artifacts in a process without the compiler."""
    install_wheels(session, ("core", "ccompiler", "dnnl"), *group("demo"))
    session.run("python", "-m", "examples.digits.demo", *session.posargs)


@nox.session(name="onnx-suite", requires=["wheels"])
def onnx_suite(session: nox.Session) -> None:
    """Run ONNX's whole test suite on the host, ccompiler, dnnl and both, and write the ledger into the docs.

    ``nox -s onnx-suite -- --on dnnl --only '^test_relu'`` runs chosen cases on chosen backends, without ledger.
    """
    install_wheels(session, ("core", "ccompiler", "dnnl", "mlops"), "pillow", *group("test"))
    runs = ["--on", "dnnl", "--on", "ccompiler", "--on", "ccompiler,dnnl", "--ledger", "docs"]
    session.run("python", "-m", "core.tests.onnx_suite", "--jobs", count_workers(session), *(session.posargs or runs))


@nox.session(requires=["wheels"])
def exports(session: nox.Session) -> None:
    """Export models by PyTorch, by quantisers and by skl2onnx, compare them with ONNX Runtime, and write the ledger.

    ``nox -s exports -- whisper --on dnnl`` runs chosen exports on chosen backends, without ledger.
    """
    install_wheels(session, ("core", "ccompiler", "dnnl", "mlops", "msops"), *group("exports"))
    session.run("python", "-m", "benchmarks.zoo.check_exports", *(session.posargs or ["--ledger", "docs"]))
