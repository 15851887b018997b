"""``byoc lint-backend``: output and exit codes."""

from __future__ import annotations

import json

import pytest
from byoc_core.lint import Finding

from core.tests.cli.conftest import RunByoc

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

_ERROR = Finding("unknown-op", "pattern `host.x`, op `ad`", "the op does not exist", "host.x", "Did you mean 'add'?")
_WARNING = Finding("claims-nothing", "backend `host`", "the backend claims no canonical case")


def test_a_clean_backend(byoc: RunByoc) -> None:
    done = byoc("lint-backend", "host", "--strict")
    assert (done.code, done.out, done.err) == (0, "Backend `host`: nothing found.\n", "")
    done = byoc("lint-backend", "host", "--json", "--compile")
    assert (done.code, json.loads(done.out)) == (0, {"backend": "host", "findings": []})


def test_an_unknown_backend_is_the_usual_error(byoc: RunByoc) -> None:
    done = byoc("lint-backend", "hots")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: byoc.backends: backend `hots` is not installed")
    assert done.err.endswith("Did you mean 'host'?\n")


@pytest.mark.parametrize(
    ("findings", "flags", "code"),
    [((_ERROR, _WARNING), [], 1), ((_WARNING,), [], 0), ((_WARNING,), ["--strict"], 1), ((_WARNING,), ["--json"], 0)],
)
def test_exit_codes(
    byoc: RunByoc, monkeypatch: pytest.MonkeyPatch, findings: tuple[Finding, ...], flags: list[str], code: int
) -> None:
    monkeypatch.setattr("byoc_core.lint.lint_backend", lambda name, *, compile_claims: findings)
    assert byoc("lint-backend", "host", *flags).code == code


def test_the_list_is_readable(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byoc_core.lint.lint_backend", lambda name, *, compile_claims: (_ERROR, _WARNING))
    assert byoc("lint-backend", "host").out == (
        "error    pattern `host.x`, op `ad`: the op does not exist [unknown-op]\n"
        "         Did you mean 'add'?\n"
        "warning  backend `host`: the backend claims no canonical case [claims-nothing]\n"
        "\n1 error and 1 warning found.\n"
    )
    found = json.loads(byoc("lint-backend", "host", "--json").out)
    assert found == {"backend": "host", "findings": [_ERROR.as_dict(), _WARNING.as_dict()]}
