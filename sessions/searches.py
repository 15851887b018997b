"""Sessions searching for faults at length: random graphs, mutants of artifacts and of the code, sanitizers."""

from __future__ import annotations

import nox

from sessions.packages import group, install_wheels
from sessions.running import REPORTS


@nox.session(name="partition-laws", requires=["wheels"])
def partition_laws(session: nox.Session) -> None:
    """Check the laws of partition on many random graphs: ``nox -s partition-laws -- --graphs 20000 --seed 1``."""
    install_wheels(session, ("core",), *group("test"))
    session.run("python", "-m", "core.tests.partitioning.long_run", *(session.posargs or ["--graphs", "1000"]))


@nox.session(requires=["wheels"])
def fuzz(session: nox.Session) -> None:
    """Load and run many mutants of artifacts of every runtime: ``nox -s fuzz -- --mutants 20000 --seed 1``."""
    install_wheels(session, ("core", "examplejson", "ccompiler", "dnnl"), *group("test"))
    session.run("python", "-m", "core.tests.artifact.fuzzing.long_run", *session.posargs)


@nox.session(name="plain-c", requires=["wheels"])
def plain_c(session: nox.Session) -> None:
    """Run exported C under sanitizers: random graphs (``nox -s plain-c -- --count 20000 --seed 1``), large networks.

    The large networks run under valgrind too. Not among the defaults, for the reason given by :func:`sanitizers`.
    """
    install_wheels(session, ("core", "ccompiler"), *group("test", "peers"))
    session.run("python", "-m", "plugins.ccompiler.tests.exported.long_run", *session.posargs)
    session.run("python", "-m", "plugins.ccompiler.tests.sanitized_models")


@nox.session(requires=["wheels"])
def sanitizers(session: nox.Session) -> None:
    """Run the tests of the C extensions and the C runtime under sanitizers: ``nox -s sanitizers -- thread``.

    The sanitizers are ThreadSanitizer, then AddressSanitizer with UBSan. Not among the defaults: the session needs the
    sanitizers of gcc, missing in other compilers and many containers.
    """
    install_wheels(
        session, ("core", "ccompiler", "dnnl", "examplejson", "conformance"), *group("test"), "setuptools>=77"
    )
    session.run("python", "-m", "core.tests.sanitizers.run", *session.posargs)


@nox.session(requires=["wheels"])
def mutation(session: nox.Session) -> None:
    """Change modules in small ways and count the changes missed by the tests: ``nox -s mutation -- vm-verify``.

    Not among the defaults: each change runs all tests reaching the change.
    """
    install_wheels(session, ("core", "dnnl"), *group("test", "mutation"))
    session.run("python", "-m", "core.tests.mutation.run", *session.posargs)


@nox.session(name="sanitized-c", requires=["wheels"])
def sanitized_c(session: nox.Session) -> None:
    """Run ccompiler's tests, and the kit's numeric level, with generated C under AddressSanitizer and UBSan.

    Not among the defaults, for the reason given by :func:`sanitizers`, and because of the long run time.
    """
    install_wheels(session, ("core", "ccompiler", "conformance"), *group("test"), "setuptools>=77")
    # gcc takes minutes for some tests' sources then: no reason to print the stacks of all threads.
    pytest = "-m pytest -q -p no:cacheprovider --capture=sys -o faulthandler_timeout=1800"
    tests = f"{pytest} plugins/ccompiler/tests"
    kit = "-c 'from byoc_core.cli.main import main; main()' conformance ccompiler --level L2"
    command = ("python", "-m", "core.tests.sanitizers.run", "address")
    session.run(*command, "--python", tests, "--python", f"{kit} --report {REPORTS / 'sanitized-c'}")
