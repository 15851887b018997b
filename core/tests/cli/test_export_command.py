"""``byoc export``: formats, options and errors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from byoc_core.native.toolchain import Toolchain
from onnx import TensorProto, helper

from core.tests.cli.conftest import RunByoc
from core.tests.cli.test_cli_native import PLUGIN

pytestmark = [
    pytest.mark.asks_for_plugins,
    pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc"),
]


@pytest.fixture
def native(install_backend: Callable[[str, str], Path]) -> str:
    """The name of an installed backend generating C for ``add`` and ``nn.relu``."""
    install_backend("nativefake", PLUGIN)
    return "nativefake"


@pytest.fixture
def sums(byoc: RunByoc) -> Path:
    """A model in the command's folder: ``y = x + m``, over a batch of ``n``."""
    nodes = [helper.make_node("Add", ["x", "m"], ["y"])]
    x, m, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 6]) for name in "xmy")
    graph = helper.make_graph(nodes, "sums", [x, m], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "sums.onnx")
    return Path("sums.onnx")


def make_check(folder: Path | str) -> str:
    flags = "CFLAGS=-std=c11 -O1 -Wall -Wextra -Werror -pedantic"
    done = subprocess.run(["make", "-s", "-C", folder, "check", flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_model_becomes_a_folder_of_c(byoc: RunByoc, native: str, sums: Path) -> None:
    done = byoc("export", sums, "--backend", native)
    assert (done.code, done.err) == (0, "")
    files = list(Path("model_c").iterdir())
    nbytes = sum(file.stat().st_size for file in files)
    assert done.out == f"wrote {len(files)} files ({nbytes:,} bytes) to model_c\nnext: make -C model_c check\n"
    assert "y: 18 elements, largest error" in make_check("model_c")
    assert "int64_t model_workspace_size(int64_t n);" in Path("model_c/model.h").read_text()


def test_an_artifact_is_exported_too(byoc: RunByoc, native: str, sums: Path) -> None:
    assert byoc("compile", sums, "-o", "m.byoc", "--backend", native, "--quiet").code == 0
    done = byoc("export", "m.byoc", "-o", "out", "--name", "tiny", "--max", "n=5", "--constants", "array")
    assert (done.code, done.err) == (0, "")
    header = Path("out/tiny.h").read_text()
    assert "#define TINY_MAX_N 5\n" in header
    assert "#define TINY_WORKSPACE_SIZE " in header
    assert "y: 30 elements" in make_check("out")
    refused = byoc("export", "m.byoc", "--backend", native)
    assert (refused.code, refused.out) == (1, "")
    assert "--backend" in refused.err


def test_an_artifact_of_another_user_needs_a_flag(
    byoc: RunByoc, native: str, sums: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert byoc("compile", sums, "-o", "m.byoc", "--backend", native, "--quiet").code == 0
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "another-users-cache"))
    refused = byoc("export", "m.byoc")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.endswith("). Pass --allow-native if you trust the origin of the artifact.\n")
    assert not Path("model_c").exists()
    assert byoc("export", "m.byoc", "--allow-native").code == 0


def test_all_formats(byoc: RunByoc, native: str, sums: Path) -> None:
    assert byoc("compile", sums, "-o", "m.byoc", "--backend", native, "--quiet").code == 0
    for name, files in {"c-archive": ["libnet.a", "net.h"], "library": ["net.so"]}.items():
        done = byoc("export", "m.byoc", "--format", name, "--name", "net")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines() == [f"wrote {file}" for file in files]
        assert all(Path(file).is_file() for file in files)
    assert byoc("export", "m.byoc", "--format", "wheel", "--name", "net").code == 0
    assert [path.name.partition("-")[0] for path in Path().glob("*.whl")] == ["net"]
    done = byoc("export", "m.byoc", "-f", "c-archive", "-o", "new/folder/libother.a", "--max", "n=3")
    assert done.out == "wrote new/folder/libother.a\nwrote new/folder/model.h\n"
    assert byoc("export", "m.byoc", "-f", "wheel", "-o", "dist").code == 0
    assert len(list(Path("dist").iterdir())) == 1


def test_memories(byoc: RunByoc, native: str, sums: Path) -> None:
    options = ("--max", "n=4", "--pool", "sram=4096:16", "--pool", "dram=any", "--pool", "flash=1000:read")
    done = byoc("export", sums, "--backend", native, *options, "--arguments-in-pools")
    assert (done.code, done.err) == (0, "")
    header = Path("model_c/model.h").read_text()
    assert "#define MODEL_SRAM_ALIGNMENT 16\n" in header
    assert "#define MODEL_DRAM_ALIGNMENT 64\n" in header
    assert "FLASH" not in header
    assert "y: 24 elements" in make_check("model_c")


@pytest.mark.parametrize("folder", ["out[1]", "out put", "[bold]x", "ö"])
def test_folders_have_any_names(byoc: RunByoc, native: str, sums: Path, folder: str) -> None:
    done = byoc("export", sums, "--backend", native, "-o", folder)
    assert done.code == 0
    assert done.out.splitlines()[0].endswith(f" to {folder}")
    assert "right" in make_check(folder)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--max", "n"), "--max: is malformed; got 'n', expected NAME=SIZE"),
        (("--max", "n=x"), "--max: is malformed; got 'n=x', expected NAME=SIZE"),
        (("--max", "n=0"), "impossible maximum of `n`; got 0, expected 1 or more"),
        (("--max", "q=3"), "option `max_sizes`: unknown size `q`; expected n"),
        (("--name", "my-model"), "option `name`: is not usable as prefix of C names; got 'my-model'"),
        (("--constants", "blob"), "option `constants`: unknown form; got 'blob', expected auto, array, object"),
        (("--pool", "sram"), "--pool: is malformed; got 'sram', expected NAME=BYTES[:ALIGNMENT][:read]"),
        (("--pool", "sram=-5"), "--pool: is malformed; got 'sram=-5', expected NAME=BYTES[:ALIGNMENT][:read]"),
        (("--pool", "sram=4k"), "--pool: is malformed; got 'sram=4k', expected NAME=BYTES[:ALIGNMENT][:read]"),
        (("--pool", "sram=64:3"), "pool `sram`: has an impossible alignment; got 3, expected a power of two"),
        (("--pool", "sram=64", "--arguments-in-pools"), "option `max_sizes`: are missing for the symbolic sizes of function `main`: n"),
        (("--pool", "flash=64:read"), "option `pools`: has no pool with access `write` for intermediates"),
        (("-f", "wheel", "--max", "n=4"), "--max: has no effect on the format `wheel`"),
        (("-f", "library", "--max", "n=4"), "--max: has no effect on the format `library`"),
        (("-f", "c-archive", "--constants", "array"), "--constants: has no effect on the format `c-archive`"),
        (("-f", "wheel", "--pool", "a=any"), "--pool: has no effect on the format `wheel`; expected --format c"),
        (("-f", "c-archive", "--arguments-in-pools"), "--arguments-in-pools: has no effect on the format `c-archive`"),
        (("-f", "wheel", "--name", "json"), "option `name`: is not usable as name of a package; got 'json'"),
    ],
)  # fmt: skip
def test_impossible_options_are_errors_and_nothing_is_written(
    byoc: RunByoc, native: str, sums: Path, arguments: tuple[str, ...], text: str
) -> None:
    before = sorted(Path().iterdir())
    done = byoc("export", sums, "--backend", native, *arguments)
    assert done.code in (1, 2)
    assert done.out == ""
    assert text in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert sorted(Path().iterdir()) == before


def test_an_unknown_format_is_a_wrong_use(byoc: RunByoc, sums: Path) -> None:
    done = byoc("export", sums, "--format", "rust")
    assert done.code == 2
    assert "'rust' is not one of" in " ".join(done.err.split())


def test_ops_on_the_host_are_listed(byoc: RunByoc, native: str, model: Path) -> None:
    for name in ("c", "c-archive", "wheel"):
        done = byoc("export", model, "--backend", native, "-f", name)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("error: function `main`: has no form in plain C because of ")
        assert "function `main`: `" in done.err
        assert "` of runtime `graph` (matmul)" in done.err
        assert "`byoc explain` shows the reason for each op on the host." in done.err
    assert [path.name for path in Path().iterdir()] == [model.name]
    assert byoc("export", model, "--backend", native, "-f", "library").code == 0


def test_a_folder_in_the_way_is_an_error(byoc: RunByoc, native: str, sums: Path) -> None:
    Path("file").write_text("in the way")
    done = byoc("export", sums, "--backend", native, "-o", "file")
    assert (done.code, done.out) == (1, "")
    assert "file" in done.err
    assert "Traceback" not in done.err
    Path("folder").mkdir()
    for name in ("c-archive", "library"):
        done = byoc("export", sums, "--backend", native, "-f", name, "-o", "folder")
        assert (done.code, done.out) == (1, "")
        assert "Traceback" not in done.err
    assert not list(Path("folder").iterdir())


def test_a_missing_model_is_an_error(byoc: RunByoc) -> None:
    done = byoc("export", "nothing.onnx")
    assert (done.code, done.out) == (1, "")
    assert "nothing.onnx" in done.err
