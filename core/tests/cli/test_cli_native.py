"""Artifacts with native code: trusted if compiled by this user, refused elsewhere unless permitted."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from byoc_core.native.toolchain import Toolchain

from core.tests.cli.conftest import RunByoc

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

PLUGIN = """
from byoc_core.authoring.csource import CSourceCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, Rejection, Support, hookimpl

@hookimpl
def byoc_backend_info():
    return BackendInfo("nativefake", native=True, dynamic_shapes=True)

@hookimpl
def byoc_supports(binding):
    return Support() if binding.op.name in ("add", "nn.relu") else Rejection("op", "only add and nn.relu")

@hookimpl
def byoc_codegen(functions, context):
    return CodegenResult(CSourceCodegen().generate(functions, context.constants))
"""


@pytest.fixture
def native_backend(byoc: RunByoc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if not Toolchain.status().ok:
        pytest.skip("there is no C compiler on this machine")
    site = tmp_path / "site"
    info = site / "byoc_nativefake-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "cli_nativefake.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: byoc-nativefake\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[byoc.backends]\nnativefake = cli_nativefake\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("BYOC_BACKENDS", "nativefake")
    return "nativefake"


def test_what_this_user_compiled_runs_and_is_refused_elsewhere(
    byoc: RunByoc, native_backend: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = byoc("compile", model, "-o", "m.byoc", "--backend", native_backend)
    assert (done.code, done.err) == (0, ""), done.err
    assert "nativefake" in done.out
    assert "yes, and trusted" in byoc("inspect", "m.byoc").out
    expected = byoc("run", model, "--random-inputs", "--backend", "host", "-o", "host.npz")
    assert expected.code == 0
    assert byoc("run", "m.byoc", "--random-inputs", "-o", "mine.npz").code == 0

    shutil.copy("m.byoc", "copy.byoc")
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "another-users-cache"))
    assert "yes: loading needs --allow-native" in byoc("inspect", "copy.byoc").out
    refused = byoc("run", "copy.byoc", "--random-inputs")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("error: artifact `copy.byoc`: holds native code (functions ")
    assert refused.err.endswith("). Pass --allow-native if you trust the origin of the artifact.\n")
    assert byoc("run", "copy.byoc", "--random-inputs", "--allow-native", "-o", "theirs.npz").code == 0
    with np.load("host.npz") as host, np.load("mine.npz") as mine, np.load("theirs.npz") as theirs:
        for name in ("y", "z"):
            np.testing.assert_allclose(mine[name], host[name], rtol=1e-6)
            np.testing.assert_array_equal(mine[name], theirs[name])


def test_without_a_compiler_a_saved_artifact_still_runs(
    byoc: RunByoc, native_backend: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--backend", native_backend).code == 0
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "an-empty-cache"))
    for variable in ("BYOC_CC", "CC"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("byoc_core.native.toolchain.find_spec", lambda name: None)
    refused = byoc("compile", model, "-o", "x.byoc", "--backend", native_backend)
    assert (refused.code, refused.out) == (1, "")
    assert "C compiler: none was found (cc, gcc, clang, ziglang)" in refused.err
    assert "apt-get install gcc, or pip install ziglang, or set BYOC_CC to a C compiler." in refused.err
    assert not Path("x.byoc").exists()
    assert byoc("run", "m.byoc", "--random-inputs", "--allow-native").code == 0
    assert byoc("run", model, "--random-inputs", "--backend", "host").code == 0


@pytest.mark.filterwarnings("always")
def test_compile_says_when_trust_cannot_be_recorded(
    byoc: RunByoc, native_backend: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYOC_CACHE_DIR", "/dev/null/cache")
    done = byoc("compile", model, "-o", "m.byoc", "--backend", native_backend)
    assert (done.code, done.err) == (
        0,
        (
            "warning: the cache folder /dev/null/cache is unusable, so m.byoc is not recorded as trusted and runs "
            "only with --allow-native. Set BYOC_CACHE_DIR to a folder with write access.\n"
        ),
    )
    assert byoc("run", "m.byoc", "--random-inputs").code == 1
    assert byoc("run", "m.byoc", "--random-inputs", "--allow-native").code == 0


@pytest.mark.filterwarnings("always")
def test_fallback_warns_or_stops(byoc: RunByoc, native_backend: str, model: Path) -> None:
    warned = byoc("compile", model, "-o", "x.byoc", "--backend", native_backend, "--fallback", "warn")
    assert warned.code == 0
    assert warned.err.startswith("warning: 1 ops with ")
    assert "matmul: nativefake: only add and nn.relu" in warned.err
    Path("x.byoc").unlink()
    stopped = byoc("compile", model, "-o", "x.byoc", "--backend", native_backend, "--fallback", "error")
    assert (stopped.code, stopped.out) == (1, "")
    assert stopped.err.startswith('error: fallback="error": 1 ops with ')
    assert not Path("x.byoc").exists()
    # Naming the host permits it.
    assert byoc("compile", model, "-o", "x.byoc", "-b", native_backend, "-b", "host", "--fallback", "error").code == 0
