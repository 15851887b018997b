"""``byoc export``: the formats, their options, and errors without written files."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from byoc_core.artifact import load_module
from byoc_core.cli.pools import parse_pool
from byoc_core.errors import OptionsError
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.pools import Pool

from core.tests.cli.conftest import RunByoc

pytestmark = pytest.mark.interpreter

PLUGIN = '''
from byoc_core.backend.hooks import BackendInfo, Rejection, Support, hookimpl

SOURCE = """
static float at(const float *x, int64_t size, int64_t i) { return size == 1 ? x[0] : x[i % size]; }
static void nest(const float *x, int64_t m, const float *y, int64_t n, float *out, int64_t size, int64_t op) {
  for (int64_t i = 0; i < size; ++i) {
    const float sum = at(x, m, i) + at(y, n, i);
    out[i] = op ? (at(x, m, i) > 0 ? at(x, m, i) : 0) : sum;
  }
}
static void product(const float *x, const float *w, float *out, int64_t rows, int64_t depth, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += x[i * depth + k] * w[k * columns + j];
      out[i * columns + j] = sum;
    }
}
"""


@hookimpl
def byoc_backend_info():
    return BackendInfo("lowered", dynamic_shapes=True)


@hookimpl
def byoc_supports(binding):
    is_known = binding.op.name in ("add", "nn.relu", "matmul", "nn.bias_add")
    return Support() if is_known else Rejection("op", "no C function")


@hookimpl
def byoc_lower(function, builder):
    builder.add_source(SOURCE)
    for binding in function.bindings:
        x, *others = map(builder.buffer, binding.operands)
        out = builder.buffer(binding.result).written()
        if binding.op.name == "matmul":
            builder.call_extern("product", x, others[0], out, *x.shape, others[0].shape[1])
        else:
            y = others[0] if others else x
            builder.call_extern("nest", x, x.size, y, y.size, out, out.size, int(not others))
'''


@pytest.fixture
def artifact(byoc: RunByoc, model: Path, install_backend: object) -> Path:
    """The model, compiled by a backend calling C functions."""
    if not Toolchain.status().ok:
        pytest.skip("no C compiler: apt-get install gcc")
    assert callable(install_backend)
    install_backend("lowered", PLUGIN)
    done = byoc("compile", model, "-o", "m.byoc", "--quiet", "--backend", "lowered")
    assert (done.code, done.err) == (0, "")
    explained = byoc("inspect", "m.byoc")
    assert "csource" in explained.out
    assert "graph" not in explained.out
    return Path("m.byoc")


def written(before: set[Path]) -> list[str]:
    """Return the names of new files and folders of the command's folder."""
    return sorted(path.name for path in set(Path().iterdir()) - before)


def make_check(folder: str) -> str:
    command = ["make", "-s", "-j2", "check", "CPPFLAGS=-Wall -Wextra -Werror -pedantic -Wno-unused-function"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@needs_make
def test_c_is_the_default_format(byoc: RunByoc, artifact: Path) -> None:
    before = set(Path().iterdir())
    done = byoc("export", artifact)
    assert (done.code, done.err) == (0, "")
    assert written(before) == ["model_c"]
    files = list(Path("model_c").iterdir())
    nbytes = sum(path.stat().st_size for path in files)
    assert done.out.splitlines() == [
        f"wrote {len(files)} files ({nbytes:,} bytes) to model_c",
        "next: make -C model_c check",
    ]
    assert make_check("model_c").count(": right") == 2
    assert "model_workspace_size(int64_t n)" in Path("model_c/model.h").read_text()


@needs_make
def test_options_of_the_format_c(byoc: RunByoc, artifact: Path) -> None:
    options = ["-o", "out", "--name", "tiny", "--max", "n=5", "--constants", "object"]
    pools = ["--pool", "sram=200:16", "--pool", "dram=any", "--pool", "flash=1000:read", "--arguments-in-pools"]
    done = byoc("export", artifact, "--format", "c", *options, *pools)
    assert (done.code, done.err) == (0, "")
    header = Path("out/tiny.h").read_text()
    for line in ("TINY_MAX_N 5", "TINY_SRAM_ALIGNMENT 16", "TINY_DRAM_ALIGNMENT 64"):
        assert f"#define {line}\n" in header
    assert "tiny_input_x(const struct tiny_pools *pools)" in header
    assert Path("out/tiny_constants.bin").exists()
    assert make_check("out").count(": right") == 2


@needs_make
def test_constants_become_a_file(byoc: RunByoc, artifact: Path) -> None:
    done = byoc("export", artifact, "--constants", "file", "--name", "tiny")
    assert (done.code, done.err) == (0, "")
    assert Path("tiny_c/tiny.weights").stat().st_size > 64
    assert "void *workspace, const void *constants);" in Path("tiny_c/tiny.h").read_text()
    assert make_check("tiny_c").count(": right") == 2


def test_the_format_c_archive(byoc: RunByoc, artifact: Path) -> None:
    before = set(Path().iterdir())
    done = byoc("export", artifact, "-f", "c-archive", "--name", "tiny", "--max", "n=5")
    assert (done.code, done.out, done.err) == (0, "wrote libtiny.a\nwrote tiny.h\n", "")
    assert written(before) == ["libtiny.a", "tiny.h"]
    assert Path("libtiny.a").read_bytes().startswith(b"!<arch>\n")
    assert "#define TINY_MAX_N 5\n" in Path("tiny.h").read_text()


def test_the_format_wheel(byoc: RunByoc, artifact: Path) -> None:
    before = set(Path().iterdir())
    done = byoc("export", artifact, "-f", "wheel", "--name", "tiny")
    (name,) = written(before)
    assert (done.code, done.out, done.err) == (0, f"wrote {name}\n", "")
    with zipfile.ZipFile(name) as wheel:
        assert "tiny/__init__.py" in wheel.namelist()


def test_the_format_library(byoc: RunByoc, artifact: Path) -> None:
    before = set(Path().iterdir())
    done = byoc("export", artifact, "-f", "library")
    assert (done.code, done.out, done.err) == (0, "wrote model.so\n", "")
    assert written(before) == ["model.so"]
    x, m = np.ones((3, 16), "float32"), np.ones((3, 8), "float32")
    y, z = np.zeros((3, 8), "float32"), np.zeros((3, 8), "float32")
    load_module(Path("model.so")).get_function("main")(x, m, y, z)
    np.testing.assert_array_equal(z, y + 1)
    assert y.any()


def test_a_model_is_compiled_before_the_export(byoc: RunByoc, artifact: Path, model: Path) -> None:
    direct = byoc("export", model, "--backend", "lowered", "-o", "direct")
    assert (direct.code, direct.err) == (0, "")
    assert byoc("export", artifact, "-o", "compiled").code == 0
    texts = [
        {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.suffix != ".bin"}
        for folder in ("direct", "compiled")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("--max", "n=3", "-f", "wheel"),
            "--max: has no effect on the format `wheel`; expected --format c or c-archive",
        ),
        (("--max", "n=3", "-f", "library"), "--max: has no effect on the format `library`; expected --format c or"),
        (
            ("--constants", "array", "-f", "wheel"),
            "--constants: has no effect on the format `wheel`; expected --format c",
        ),
        (("--pool", "a=1", "-f", "library"), "--pool: has no effect on the format `library`; expected --format c"),
        (("--arguments-in-pools", "-f", "c-archive"), "--arguments-in-pools: has no effect on the format `c-archive`"),
        (("--pool", "a"), "--pool: is malformed; got 'a', expected NAME=BYTES[:ALIGNMENT][:read]"),
        (("--max", "k=3"), "option `max_sizes`: unknown size `k`; expected n"),
        (("--max", "n=0"), "option `max_sizes`: impossible maximum of `n`; got 0, expected 1 or more"),
        (("--name", "a-b"), "option `name`: is not usable as prefix of C names; got 'a-b', expected such as 'model'"),
        (("--constants", "text"), "option `constants`: unknown form; got 'text', expected auto, array, object, file"),
        (("--pool", "sram=8", "--max", "n=3"), "pool `sram`"),
        (("--max", "n"), "--max: is malformed; got 'n', expected NAME=SIZE"),
        (("--pool", "sram=64:3"), "pool `sram`: has an impossible alignment; got 3, expected a power of two"),
        (("--pool", "flash=64:read"), "option `pools`: has no pool with access `write` for intermediates"),
        (("-f", "wheel", "--name", "json"), "option `name`: is not usable as name of a package; got 'json'"),
        (("--backend", "lowered"), "--backend"),
        (("--pool", "sram=8"), "option `max_sizes`: are missing for the symbolic sizes of function `main`: n"),
    ],
)
def test_wrong_options_are_named_and_nothing_is_written(
    byoc: RunByoc, artifact: Path, arguments: tuple[str, ...], text: str
) -> None:
    before = set(Path().iterdir())
    done = byoc("export", artifact, *arguments)
    assert done.code == 1
    assert done.out == ""
    assert text in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert written(before) == []


def test_unknown_formats_are_a_fault_of_usage(byoc: RunByoc, artifact: Path) -> None:
    done = byoc("export", artifact, "--format", "tflite")
    assert done.code == 2
    for name in ("c", "c-archive", "library", "wheel"):
        assert f"'{name}'" in done.err


@pytest.mark.parametrize("kind", ["c", "c-archive", "wheel"])
def test_ops_on_the_host_are_listed(byoc: RunByoc, model: Path, kind: str) -> None:
    before = set(Path().iterdir())
    done = byoc("export", model, "-f", kind)
    assert (done.code, done.out) == (1, "")
    text = " ".join(done.err.split())
    assert "function `main`: has no form in plain C because of 1 part" in text
    assert "of runtime `graph` (matmul, " in text
    assert written(before) == []


def test_an_artifact_of_another_user_needs_a_flag(
    byoc: RunByoc, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "cache-of-another-user"))
    before = set(Path().iterdir())
    refused = byoc("export", artifact)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.endswith("). Pass --allow-native if you trust the origin of the artifact.\n")
    assert written(before) == []
    assert byoc("export", artifact, "--allow-native").code == 0


@needs_make
@pytest.mark.parametrize("folder", ["out[1]", "out put", "[bold]x", "ö"])
def test_folders_have_any_names(byoc: RunByoc, artifact: Path, folder: str) -> None:
    done = byoc("export", artifact, "-o", folder)
    assert done.code == 0
    assert done.out.splitlines()[0].endswith(f" to {folder}")
    assert make_check(folder).count(": right") == 2


@pytest.mark.parametrize("kind", ["c-archive", "library"])
def test_a_folder_in_the_way_is_an_error(byoc: RunByoc, artifact: Path, kind: str) -> None:
    Path("folder").mkdir()
    done = byoc("export", artifact, "-f", kind, "-o", "folder")
    assert (done.code, done.out) == (1, "")
    assert "folder" in done.err
    assert "Traceback" not in done.err
    assert not list(Path("folder").iterdir())


def test_a_file_in_the_way_is_named(byoc: RunByoc, artifact: Path) -> None:
    Path("taken").write_text("a file")
    done = byoc("export", artifact, "-o", "taken")
    assert done.code == 1
    assert "taken" in done.err
    assert "Traceback" not in done.err
    assert Path("taken").read_text() == "a file"


def test_a_missing_model_is_named(byoc: RunByoc) -> None:
    done = byoc("export", "absent.byoc")
    assert done.code == 1
    assert "absent.byoc" in done.err


def test_pools_as_text() -> None:
    read = frozenset({"read"})
    assert parse_pool("sram=65536") == Pool("sram", 65536)
    assert parse_pool("dram=any") == Pool("dram")
    assert parse_pool("tcm=1024:8") == Pool("tcm", 1024, alignment=8)
    assert parse_pool("flash=10:read") == Pool("flash", 10, accesses=read)
    assert parse_pool("flash=any:4:read") == parse_pool("flash=any:read:4") == Pool("flash", alignment=4, accesses=read)


@pytest.mark.parametrize("text", ["", "=", "a", "a=", "=5", "a=-1", "a=1.5", "a=x", "a=1:2:4", "a=1:write", "a=٣"])
def test_malformed_pools_are_refused(text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        parse_pool(text)
    assert str(caught.value) == f"--pool: is malformed; got {text!r}, expected NAME=BYTES[:ALIGNMENT][:read]"
