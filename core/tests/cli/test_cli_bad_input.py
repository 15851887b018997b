"""Bad input, seen by the user: a single clear paragraph, exit code 1, and nothing lost."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from byoc_core.artifact.archive import read_archive, write_archive
from byoc_core.cli.own_commands import OwnCommands
from byoc_core.native.toolchain import Toolchain
from onnx import TensorProto, helper

from core.tests.cli.conftest import RunByoc

pytestmark = pytest.mark.lowest

COPY_AGAIN = "Copy the file again, or compile the model again."


def save_model(path: str, *nodes: onnx.NodeProto) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y"))
    graph = helper.make_graph(list(nodes), "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def prepare_models(model: Path) -> None:
    Path("text.onnx").write_text("this is text, and no model\n" * 9)
    Path("empty.onnx").write_bytes(b"")
    data = model.read_bytes()
    Path("cut.onnx").write_bytes(data[: len(data) // 2])
    save_model("cycle.onnx", helper.make_node("Add", ["x", "y"], ["a"]), helper.make_node("Relu", ["a"], ["y"]))
    save_model("unknown.onnx", helper.make_node("Foo", ["x"], ["a"]), helper.make_node("Foo", ["a"], ["y"]))


MODEL_ERRORS = {
    "text.onnx": "is not an ONNX model, or is truncated; got 243 bytes, rejected by protobuf",
    "empty.onnx": "is not an ONNX model: the file is empty",
    "cut.onnx": "is not an ONNX model, or is truncated; got {size} bytes, rejected by protobuf",
    "cycle.onnx": "the graph has a cycle; got nodes on or behind the cycle: node `a` (Add), node `y` (Relu)",
    "unknown.onnx": (
        "2 of 2 nodes have unsupported ops; got Foo (2x). To import `Foo`, run this code before `from_onnx`, with the "
        "outputs of the node in the last line:\nimport byoc_core\n\n@byoc_core.register_op('', 'Foo')\n"
        "def import_node(node):\n"
        "    return [node.value(0)] * node.num_outputs  # stands for the outputs: node.emit(op, node.value(0))"
    ),
}


@pytest.mark.parametrize("name", MODEL_ERRORS)
@pytest.mark.parametrize("command", ["compile {} -o old.byoc", "run {}", "explain {}"])
def test_a_model_that_cannot_be_imported(byoc: RunByoc, model: Path, name: str, command: str) -> None:
    prepare_models(model)
    Path("old.byoc").write_bytes(b"what stood here before")
    done = byoc(*command.format(name).split())
    text = MODEL_ERRORS[name].format(size=Path(name).stat().st_size)
    assert (done.code, done.out, done.err) == (1, "", f"error: {name}: {text}\n")
    assert Path("old.byoc").read_bytes() == b"what stood here before"


def changed(path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], object]) -> bytes:
    data = path.read_bytes()
    members = {name: data[m.offset : m.end] for name, m in read_archive(memoryview(data), "x").items()}
    manifest = json.loads(members["manifest.json"])
    change(manifest, members)
    file = io.BytesIO()
    write_archive(file, {**members, "manifest.json": json.dumps(manifest).encode()})
    return file.getvalue()


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def need_another_runtime(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
    manifest["runtimes"][0].update(type_key="npu", distribution="byoc-npu-driver")
    manifest["modules"][0].update(type_key="npu")


ARTIFACT_ERRORS: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "cut": (lambda path: path.read_bytes()[:-9], f"artifact `m.byoc`: is truncated or damaged. {COPY_AGAIN}"),
    "flipped header": (
        lambda path: flip(path.read_bytes(), 5),
        f"artifact `m.byoc`: is truncated or damaged. {COPY_AGAIN}",
    ),
    "flipped program": (
        lambda path: flip(path.read_bytes(), read_archive(memoryview(path.read_bytes()), "x")["program"].offset),
        f"artifact `m.byoc`, member program: is damaged. {COPY_AGAIN}",
    ),
    "missing member": (
        lambda path: changed(path, lambda manifest, members: members.pop("program")),
        f"artifact `m.byoc`: has no member program. {COPY_AGAIN}",
    ),
    "newer format": (
        lambda path: changed(path, lambda manifest, members: manifest.update(format_version=9, core_version="7.0")),
        (
            "artifact `m.byoc`: made by byoc-core 7.0 in artifact format 9, not readable by this byoc-core; "
            "expected format 1 or older. pip install -U byoc-core"
        ),
    ),
    "absent runtime": (
        lambda path: changed(path, need_another_runtime),
        (
            "byoc.runtimes: runtime `npu` is not installed; installed: csource, graph. `pip install byoc-npu-driver` "
            "provides the plugin, according to artifact `m.byoc`. Anybody can write any name into a file: check the "
            "publisher of the distribution first."
        ),
    ),
}


@pytest.mark.asks_for_plugins
@pytest.mark.parametrize("fault", ARTIFACT_ERRORS)
def test_an_artifact_that_cannot_be_run(byoc: RunByoc, artifact: Path, fault: str) -> None:
    make, text = ARTIFACT_ERRORS[fault]
    artifact.write_bytes(make(artifact))
    done = byoc("run", artifact, "-o", "out.npz")
    got = done.err
    if fault == "absent runtime":  # other runtimes of the machine are listed too
        installed = re.search(r"installed: ([\w, ]+)\.", got)
        assert installed is not None
        assert {"csource", "graph"} <= set(installed[1].split(", "))
        got = got.replace(installed[1], "csource, graph")
    assert (done.code, done.out, got) == (1, "", f"error: {text}\n")
    assert not Path("out.npz").exists()


@pytest.mark.parametrize("command", ["inspect", "run", "verify", "explain", "plan"])
@pytest.mark.parametrize("name", ["byoc-npu-driver", "numpy --index-url http://evil", "x; rm -rf ~", "-r evil.txt"])
def test_a_distribution_that_an_artifact_names_is_doubted(
    byoc: RunByoc, artifact: Path, command: str, name: str
) -> None:
    def rename(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        need_another_runtime(manifest, members)
        manifest["runtimes"][0]["distribution"] = name

    artifact.write_bytes(changed(artifact, rename))
    done = byoc(command, artifact)
    text = " ".join((done.out + done.err).split())
    if name == "byoc-npu-driver" and "pip install" in text:
        assert text.count("pip install") == text.count(f"`pip install {name}` provides the plugin, according to ")
        assert "check the publisher of the distribution first" in text
    else:
        assert "pip install" not in text
    if command in ("inspect", "run"):
        assert "no distribution can have this name" in text or name == "byoc-npu-driver"


FAILING = """
from byoc_core.backend.hooks import BackendInfo, CodegenResult, Support, hookimpl

@hookimpl
def byoc_backend_info():
    return BackendInfo("failing", dynamic_shapes=True)

@hookimpl
def byoc_supports(binding):
    return Support()

@hookimpl
def byoc_codegen(functions, context):
    raise ZeroDivisionError("kaboom")
"""


UNAVAILABLE = """
from byoc_core.backend.hooks import BackendInfo, CodegenResult, Status, hookimpl

@hookimpl
def byoc_backend_info():
    return BackendInfo("unavailable", dynamic_shapes=True)

@hookimpl
def byoc_compile_status(context):
    return Status(False, "the SDK is missing", "Install the SDK.")

@hookimpl
def byoc_codegen(functions, context):
    return CodegenResult(None)
"""


@pytest.fixture
def faulty_backends(byoc: RunByoc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    for name, code in (("failing", FAILING), ("unavailable", UNAVAILABLE)):
        info = site / f"byoc_{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"cli_{name}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: byoc-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[byoc.backends]\n{name} = cli_{name}\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("BYOC_BACKENDS", "failing,unavailable")


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(
    "command", ["run m.onnx --random-inputs", "compile m.onnx -o x.byoc --quiet", "explain m.onnx", "demo"]
)
def test_a_named_backend_that_cannot_compile_here_is_never_passed_over_in_silence(
    byoc: RunByoc, model: Path, faulty_backends: None, command: str
) -> None:
    done = byoc(*command.split(), "--backend", "unavailable")
    assert (done.code, done.err) == (
        0,
        (
            "warning: backend `unavailable` cannot compile here: the SDK is missing. Install the SDK.\n"
            "Other backends and the host take its ops.\n"
        ),
    )
    stopped = byoc("compile", model, "-o", "y.byoc", "--backend", "unavailable", "--fallback", "error")
    assert (stopped.code, stopped.out) == (1, "")
    assert "unavailable: cannot compile here: the SDK is missing. Install the SDK" in stopped.err
    assert not Path("y.byoc").exists()


@pytest.mark.parametrize("strict", [["--strict"], ["--fallback", "error"]], ids=["strict", "fallback"])
def test_a_backend_that_raises_is_named_and_leaves_no_file(
    byoc: RunByoc, model: Path, faulty_backends: None, strict: list[str]
) -> None:
    done = byoc("compile", model, "-o", "x.byoc", "--backend", "failing", *strict)
    assert (done.code, done.out, done.err) == (1, "", _FAILED)
    assert not Path("x.byoc").exists()
    assert byoc("compile", model, "-o", "x.byoc", "--backend", "host").code == 0


_FAILED = (
    "error: plugin `failing` (byoc-failing 1.0), hook `byoc_codegen`: raised ZeroDivisionError: kaboom. "
    "This is a fault of byoc-failing, not of byoc-core.\n"
)
_COMPILING = {
    "bench": ("m.onnx", "--strict"),
    "calibrate": ("--strict",),
    "compile": ("m.onnx", "-o", "x.byoc", "--strict"),
    "debug": ("m.onnx", "--no-isolate"),
    "demo": ("--strict",),
    "explain": ("m.onnx", "--strict"),
    "export": ("m.onnx", "--strict"),
    "plan": ("m.onnx", "--strict"),
    "profile": ("m.onnx", "--strict"),
    "run": ("m.onnx", "--strict"),
    "tune": ("m.onnx", "-o", "x.lock", "--strict"),
}
"""The commands compiling for backends, each with the option for strictness; `byoc debug` is always strict."""


@pytest.mark.parametrize("command", _COMPILING)
def test_each_command_that_compiles_can_be_strict(
    byoc: RunByoc, model: Path, faulty_backends: None, command: str
) -> None:
    done = byoc(command, *_COMPILING[command], "--backend", "failing")
    assert done.code == 1
    if command == "debug":
        assert "ZeroDivisionError: kaboom" in done.out
    else:
        assert (done.out, done.err) == ("", _FAILED)


def test_no_command_that_compiles_is_left_out() -> None:
    options = {
        name: {text for param in command.params for text in param.opts} for name, command in OwnCommands().items()
    }
    assert {name for name, texts in options.items() if "--backend" in texts} == {*_COMPILING, "config"}
    assert {name for name in _COMPILING if "--strict" not in options[name]} == {"debug"}


@pytest.mark.filterwarnings("always")
def test_a_backend_that_raises_takes_nothing_and_the_model_compiles(
    byoc: RunByoc, model: Path, faulty_backends: None
) -> None:
    done = byoc("compile", model, "-o", "x.byoc", "--backend", "failing")
    assert done.code == 0
    assert "warning: backend `failing`, hook `byoc_codegen`: raised ZeroDivisionError: kaboom" in done.err
    assert "failing: hook byoc_codegen raised ZeroDivisionError: kaboom for 1 op" in done.out
    told = json.loads(byoc("explain", "x.byoc", "--json").out)
    assert told["hook_failures"][0]["traceback"].endswith("ZeroDivisionError: kaboom")


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(byoc: RunByoc, artifact: Path, streams: str) -> None:
    script = f'"{sys.executable}" -c "from byoc_core.cli.main import main; main()"'
    for arguments, code in ((f"run {artifact} --random-inputs -o out.npz", 0), ("run absent.byoc", 1)):
        done = subprocess.run(
            ["bash", "-c", f"{script} {arguments} {streams}"], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        if code == 1:
            expected = "" if "2>&-" in streams else "error: absent.byoc: No such file or directory\n"
            assert (done.stdout, done.stderr) == ("", expected)
    assert Path("out.npz").exists()


def test_doctor_names_a_compiler_that_is_missing_once(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("BYOC_CC", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("byoc_core.native.toolchain.find_spec", lambda name: None)
    done = byoc("doctor")
    lines = done.out.splitlines()
    place = lines.index("note   C compiler: none was found (cc, gcc, clang, ziglang)")
    remedy = "apt-get install gcc, or pip install ziglang, or set BYOC_CC to a C compiler."
    assert lines[place + 1].strip() == remedy
    assert done.code == 0
    assert byoc("demo").code == 0
    assert not Toolchain.status().ok
