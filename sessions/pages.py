"""Sessions of the documentation: run the code, build the site."""

from __future__ import annotations

import nox

from sessions.packages import PACKAGES, group, install_wheels
from sessions.running import run_tests


@nox.session(requires=["wheels"])
def docs(session: nox.Session) -> None:
    """Run the code of the README and of every page under docs/, build the site, and test the examples."""
    install_wheels(session, tuple(PACKAGES), *group("test", "demo", "site", "serving", "scoring"))
    run_tests(session, "docs", *(f"examples/{name}/tests" for name in ("digits", "serving", "scoring")))


@nox.session(requires=["wheels"])
def site(session: nox.Session) -> None:
    """Build the documentation's site in out/site, for a reader; ``docs`` builds the site too, and drops the result."""
    install_wheels(session, ("core", "conformance"), *group("site"))
    session.run("python", "-m", "docs.site.build", "out/site")
