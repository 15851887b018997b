"""Faulty distributions on disk, all installed at once beside a good distribution, in fresh processes, as for a user.

Each fake brings a backend and a runtime of its name. The modules leave a mark when imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from byoc_core.cli import plugin_status
from byoc_core.plugin import PluginRecord
from byoc_core.runtime.status import Status
from onnx import TensorProto, helper

from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

MARK = "import os, pathlib\npathlib.Path(os.environ['FAKE_MARKS'], __name__).touch()\n"

BACKEND = """
from byoc_core.backend.hooks import BackendInfo, CodegenResult, Rejection, Support, hookimpl
from fake_modules import ReluModule

@hookimpl
def byoc_backend_info():
    return BackendInfo("NAME")

@hookimpl
def byoc_supports(binding):
    return Support() if binding.op.name == "nn.relu" else Rejection("op", "only nn.relu")

@hookimpl
def byoc_codegen(functions):
    return CodegenResult(ReluModule("NAME", [f.attrs["global_symbol"] for f in functions]))
"""

RUNTIME = """
from byoc_core.runtime.hooks import RuntimeInfo, hookimpl
from fake_modules import ReluModule

@hookimpl
def byoc_runtime_info():
    return RuntimeInfo("NAME")

@hookimpl
def byoc_save_module(module):
    return ",".join(module.function_names).encode()

@hookimpl
def byoc_load_module(payload):
    return ReluModule("NAME", payload.decode().split(","))
"""

MODULES = """
import numpy as np
from byoc_core.runtime.module import PackedFunction, RuntimeModule

class ReluModule(RuntimeModule):
    type_key = ""
    function_names = ()

    def __init__(self, type_key, names):
        self.type_key, self.function_names = type_key, tuple(names)

    def find_function(self, name):
        return PackedFunction(name, lambda x, y: np.maximum(x, 0, out=y))
"""

INFO_HOOKS = {"backend": "byoc_backend_info", "runtime": "byoc_runtime_info"}
INFO_TYPES = {"backend": "BackendInfo", "runtime": "RuntimeInfo"}


@dataclass(frozen=True)
class Fault:
    """The fault of a fake, and the resulting texts.

    Attributes:
        reason: the reason in listings and errors; ``HALF``, ``MODULE``, ``INFO`` and ``TYPE`` stand for the half's own.
        remedy: the advice.
        first: code run at the import of the modules, after the mark.
        replaced: text of the modules, with the replacement.
        requires: the range of core versions.
        state: the final state in the records.
        rival: whether another distribution claims its names.
        exit_code: of a command asking for the fake by name; ``None``: the command cannot survive.
    """

    reason: str
    remedy: str = "Report this to the authors of byoc-NAME."
    first: str = ""
    replaced: tuple[tuple[str, str], ...] = ()
    requires: str = "byoc-core"
    state: str = "broken"
    rival: bool = False
    exit_code: int | None = 1


UNINSTALL = "Report this to the authors of byoc-NAME, or pip uninstall byoc-NAME."
LISTED_ONLY = "Report this to the authors of byoc-NAME"  # backends may be disabled too
FAULTS = {
    "unimportable": Fault(
        "importing `MODULE` raised ModuleNotFoundError: No module named 'absent_library'",
        "Install the missing module `absent_library`; "
        "if it is the plugin's own, pip install --force-reinstall byoc-NAME.",
        first="import absent_library",
    ),
    "exiting": Fault("importing `MODULE` raised SystemExit: 0", UNINSTALL, first="raise SystemExit(0)"),
    "escaping": Fault(
        "importing `MODULE` raised BaseException: past every handler",
        UNINSTALL,
        first="raise BaseException('past every handler')",
    ),
    "interrupting": Fault(
        "the import or the status query raised KeyboardInterrupt",
        LISTED_ONLY,
        first="raise KeyboardInterrupt",
        exit_code=130,
    ),
    "dying": Fault(
        "during import or the status query: the process ended with exit status 3",
        LISTED_ONLY,
        "os._exit(3)",
        exit_code=None,
    ),
    "crashing": Fault(
        "during import or the status query: the process ended with signal SIGKILL",
        LISTED_ONLY,
        "os.kill(os.getpid(), 9)",
        exit_code=None,
    ),
    "misspelt": Fault(
        "there is no hook `byoc_HALF_inof`", "Did you mean", replaced=(("_info():", "_inof():"),), exit_code=1
    ),
    "hookless": Fault(
        "the plugin implements no hook",
        "The entry point may refer to the wrong object.",
        replaced=((BACKEND, ""), (RUNTIME, "")),
    ),
    "unmarked": Fault(
        "the function `INFO` is not marked as a hook",
        "Decorate it with `@hookimpl`.",
        replaced=tuple((f"@hookimpl\ndef {hook}", f"def {hook}") for hook in INFO_HOOKS.values()),
    ),
    "untyped": Fault(
        "hook `INFO`: returned a value of the wrong type; got str, expected TYPE",
        replaced=(("return BackendInfo", "return str"), ("return RuntimeInfo", "return str")),
    ),
    "raising": Fault(
        "hook `INFO`: raised OSError: no device",
        replaced=tuple((f"{hook}():", f"{hook}():\n    raise OSError('no device')") for hook in INFO_HOOKS.values()),
    ),
    "leaving": Fault(
        "hook `INFO`: raised SystemExit: 0",
        replaced=tuple((f"{hook}():", f"{hook}():\n    raise SystemExit(0)") for hook in INFO_HOOKS.values()),
    ),
    "renamed": Fault(
        "different from the entry point's name; got 'another', expected 'NAME'",
        replaced=(("Info(\"NAME\")", "Info('another')"),),
    ),
    "outdated": Fault(
        "the plugin needs byoc-core<0.1, and",
        "Install versions that fit: pip install --upgrade byoc-NAME byoc-core.",
        requires="byoc-core<0.1",
        state="incompatible",
    ),
    "futuristic": Fault(
        "the plugin needs byoc-core<100,>=99, and",
        "Install versions that fit: pip install --upgrade byoc-NAME byoc-core.",
        requires="byoc-core>=99,<100",
        state="incompatible",
    ),
    "claimed": Fault(
        "the name is also claimed by rival-claimed 2.0",
        "Uninstall a distribution, or choose this distribution with BYOC_PREFER=NAME=byoc-NAME.",
        state="clash",
        rival=True,
    ),
}  # fmt: skip
SOUND = {"good": "", "slow": "import time; time.sleep(2)\n", "loud": "print('noise')\nos.write(1, b'noise')\n"}
DEADLY = [name for name, fault in FAULTS.items() if fault.exit_code != 1]
"""Modules killing any importing process."""
FICKLE = """
@hookimpl
def byoc_compile_status():
    raise OSError("no device")
"""
"""Backends with a hook failing when called, after opening the plugin."""


@dataclass(frozen=True)
class Installation:
    """A folder of fakes.

    Attributes:
        site: in the role of ``site-packages``.
        marks: the folder for marks of fakes.
        work: the folder for commands; holds ``m.onnx``, and for each fake ``<name>.byoc``, made before its fault.
    """

    site: Site
    marks: Path
    work: Path

    def install(self, name: str, fault: Fault | None = None, first: str = "") -> None:
        """Install a fake, or replace the fake's modules."""
        modules = {}
        for half, source in (("backend", BACKEND), ("runtime", RUNTIME)):
            text = source
            for old, new in fault.replaced if fault is not None else ():
                text = text.replace(old, new)
            code = fault.first if fault is not None else first
            modules[f"fake_{name}_{half}"] = f"{MARK}{code}\n{text.replace('NAME', name)}"
        requires = (fault.requires if fault is not None else "byoc-core",)
        entries = f"[byoc.backends]\n{name} = fake_{name}_backend\n\n[byoc.runtimes]\n{name} = fake_{name}_runtime\n"
        self.site.install(f"byoc-{name}", entries, modules, version="1.0", requires=requires)
        if fault is not None and fault.rival:
            self.site.install(f"rival-{name}", entries, version="2.0")

    def python(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Python in a fresh process; earlier marks are removed."""
        for mark in self.marks.iterdir():
            mark.unlink()
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("BYOC_", "PYTHONPATH"))}
        path = [str(self.site.folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            cwd=self.work,
            env={
                **inherited,
                "PYTHONPATH": os.pathsep.join(path),
                "FAKE_MARKS": str(self.marks),
                "BYOC_CACHE_DIR": str(self.work / "cache"),
                "COLUMNS": "400",
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def byoc(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return self.python("-c", "from byoc_core.cli.main import main; main()", *arguments, **environment)

    def marked(self) -> set[str]:
        """Return the names of the fakes imported by the last process."""
        return {mark.name.split("_")[1] for mark in self.marks.iterdir()}


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """All fakes, first sound, for an artifact each, then with their faults."""
    folder = tmp_path_factory.mktemp("fakes")
    healthy, faulty = (
        Installation(Site(folder / state / "site"), folder / state / "marks", folder / "work")
        for state in ("healthy", "faulty")
    )
    (folder / "work").mkdir()
    for state in (healthy, faulty):
        state.marks.mkdir(parents=True)
        state.site.folder.mkdir()
        (state.site.folder / "fake_modules.py").write_text(MODULES)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "work" / "m.onnx"
    )
    np.save(folder / "work" / "x.npy", np.array([-1, 2, -3, 4], "float32"))
    for name in (*FAULTS, *SOUND):
        healthy.install(name)
        faulty.install(name, FAULTS.get(name), SOUND.get(name, ""))
    faulty.site.install("wrecked", "[byoc.backends]\nthis line has no equals sign\n")
    script = "import byoc_core\nm = byoc_core.from_onnx('m.onnx')\n" + "\n".join(
        f"byoc_core.build(m, ['{name}'], fallback='error').save('{name}.byoc')" for name in FAULTS
    )
    done = healthy.python("-c", script)
    assert done.returncode == 0, done.stderr
    return faulty


def expected(text: str, name: str, half: str) -> str:
    """Return a text with the words of a half."""
    words = {"MODULE": f"fake_{name}_{half}", "INFO": INFO_HOOKS[half], "TYPE": INFO_TYPES[half]}
    for word, meaning in {**words, "NAME": name, "HALF": half}.items():
        text = text.replace(word, meaning)
    return text


def test_nothing_is_imported_that_is_not_asked_for(fakes: Installation) -> None:
    script = "import byoc_core; r = byoc_core.backends; r.names(); [str(x) for x in r.list()]; r.get('host')"
    done = fakes.python("-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert fakes.marked() == set()
    for command in ("--version", "--help", "inspect good.byoc", "inspect exiting.byoc"):
        fakes.byoc(*command.split())
        assert fakes.marked() == set(), command


def test_a_good_plugin_compiles_and_runs_beside_them(fakes: Installation) -> None:
    done = fakes.byoc("compile", "m.onnx", "-o", "good.byoc", "--backend", "good", "--fallback", "error")
    assert done.returncode == 0, done.stderr
    assert fakes.marked() == {"good"}
    done = fakes.byoc("run", "good.byoc", "--input", "x=x.npy", "-o", "y.npz")
    assert done.returncode == 0, done.stderr
    assert fakes.marked() == {"good"}
    with np.load(fakes.work / "y.npz") as outputs:
        assert outputs["y"].tolist() == [0, 2, 0, 4]


def test_where_none_is_named_all_are_asked_and_the_faulty_passed_over(fakes: Installation) -> None:
    disabled = ",".join([*DEADLY, "slow"])
    done = fakes.byoc("compile", "m.onnx", "-o", "all.byoc", "--fallback", "error", BYOC_DISABLE_BACKENDS=disabled)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    unimported = {name for name, fault in FAULTS.items() if fault.state != "broken"}
    assert fakes.marked() == (set(FAULTS) | set(SOUND)) - unimported - set(disabled.split(","))


def test_a_slow_one_works_when_it_is_asked_for(fakes: Installation) -> None:
    done = fakes.byoc("compile", "m.onnx", "-o", "slow.byoc", "--backend", "slow", "--fallback", "error")
    assert done.returncode == 0, done.stderr
    assert fakes.marked() == {"slow"}


def test_listings_give_reason_and_remedy_of_each(fakes: Installation) -> None:
    listed, found = fakes.byoc("backends"), fakes.byoc("doctor")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert (found.returncode, found.stderr) == (1, "")
    assert "noise" not in listed.stdout + found.stdout
    halves = dict(zip(INFO_HOOKS, listed.stdout.split("\nRuntimes"), strict=True))
    advice = found.stdout.splitlines()
    assert (
        sum(line.startswith("fault  plugins: distribution `wrecked` has unreadable metadata") for line in advice) == 1
    )
    num_faults = 1
    for half, table in halves.items():
        rows = {row[0]: " ".join(row) for line in table.splitlines() if (row := line.split()) and len(row) > 4}
        for name in SOUND:
            assert rows[name] == f"{name} byoc-{name} 1.0 available yes"
            assert (
                f"fine   {half} `{name}` (byoc-{name} 1.0): can {'compile' if half == 'backend' else 'run'}" in advice
            )
        for name, fault in FAULTS.items():
            reason, remedy = (expected(text, name, half) for text in (fault.reason, fault.remedy))
            (listing,) = (
                " ".join(line.split()) for line in table.splitlines() if line.split()[:2] == [name, f"byoc-{name}"]
            )
            assert listing.startswith(f"{name} byoc-{name} 1.0 {fault.state} no ")
            assert reason in listing
            assert remedy in listing
            place = next(
                i for i, line in enumerate(advice) if line.startswith(f"fault  {half} `{name}` (byoc-{name} 1.0): ")
            )
            assert f": {fault.state}: " in advice[place]
            assert reason in advice[place]
            assert advice[place + 1].startswith(f"       {remedy}")
            num_faults += 1 + fault.rival
    assert advice[-1] == f"{num_faults} faults found."


ASK_FOR_EACH = """
import contextlib, io, json, os, pathlib, sys
from byoc_core.cli.main import main

def ask(*command):
    sys.argv = ["byoc", *command]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as end:
            code = end.code
    marks = sorted(mark.name for mark in pathlib.Path(os.environ["FAKE_MARKS"]).iterdir())
    return [code, out.getvalue(), err.getvalue(), marks]

answers = {
    name: [ask("compile", "m.onnx", "-o", "none.byoc", "--backend", name), ask("run", f"{name}.byoc")]
    for name in sys.argv[1:]
}
answers["good"] = [ask("compile", "m.onnx", "-o", "last.byoc", "--backend", "good", "--fallback", "error")]
print(json.dumps(answers))
"""
SURVIVED = [name for name, fault in FAULTS.items() if fault.exit_code is not None]


Answers = dict[str, list[tuple[int, str, str, list[str]]]]
"""For each plugin, for each half: exit code, output, errors, and the marks left."""


@pytest.fixture(scope="module")
def answers(fakes: Installation) -> Answers:
    """The answers of a single process asked for both halves of each fake, and at last for a good backend."""
    done = fakes.python("-c", ASK_FOR_EACH, *SURVIVED)
    assert (done.returncode, done.stderr) == (0, "")
    return {name: [tuple(part) for part in parts] for name, parts in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", SURVIVED)
def test_a_faulty_one_that_is_asked_for_is_an_error_with_reason_and_remedy(answers: Answers, name: str) -> None:
    fault = FAULTS[name]
    for half, (code, out, error, marks) in zip(INFO_HOOKS, answers[name], strict=True):
        assert (code, out) == (fault.exit_code, "")
        if fault.exit_code == 1:
            assert error.startswith(f"error: plugin `{name}` (byoc-{name} 1.0): cannot be used ({fault.state}): ")
            assert expected(fault.reason, name, half) in error
            assert expected(fault.remedy, name, half) in error
        else:
            assert error == f"interrupted while plugin `{name}` (byoc-{name} 1.0) was imported\n"
        assert (f"fake_{name}_{half}" in marks) == (fault.state == "broken")


def test_the_process_that_met_them_all_still_compiles(
    answers: Answers,
) -> None:
    ((code, _, error, marks),) = answers["good"]
    assert (code, error) == (0, "")
    imported = {mark.split("_")[1] for mark in marks}
    assert imported == {"good"} | {name for name in SURVIVED if FAULTS[name].state == "broken"}


def test_hooks_that_fail_later(fakes: Installation, tmp_path: Path) -> None:
    """A raising status means no; a hook trying to end the process counts as raising."""
    fickle = replace(fakes, site=Site(tmp_path / "site"), marks=tmp_path / "marks")
    for folder in (fickle.site.folder, fickle.marks):
        folder.mkdir()
    (fickle.site.folder / "fake_modules.py").write_text(MODULES)
    fickle.install("unsure", Fault("", replaced=((RUNTIME, RUNTIME), (BACKEND, BACKEND + FICKLE))))
    leave = ("return CodegenResult", "raise SystemExit(0)\n    return CodegenResult")
    fickle.install("leaving", Fault("", replaced=(leave,)))
    found = fickle.byoc("doctor")
    assert found.returncode == 0
    assert (
        "note   backend `unsure` (byoc-unsure 1.0): is unusable here: plugin `unsure` (byoc-unsure 1.0), "
        "hook `byoc_compile_status`: raised OSError: no device." in found.stdout
    )
    done = fickle.byoc("compile", "m.onnx", "-o", "none.byoc", "--backend", "leaving", "--strict")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: plugin `leaving` (byoc-leaving 1.0), hook `byoc_codegen`: raised SystemExit: 0. "
        "This is a fault of byoc-leaving, not of byoc-core.\n"
    )


def test_one_that_never_answers_is_given_up(fakes: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    record = PluginRecord("slow", "byoc.runtimes", "fake_slow_runtime", "byoc-slow", "1.0")
    monkeypatch.setattr(plugin_status, "PATIENCE", 1.0)
    monkeypatch.syspath_prepend(str(fakes.site.folder))
    monkeypatch.setenv("FAKE_MARKS", str(fakes.marks))
    with plugin_status.PluginExaminer() as examiner:
        broken, status = examiner.ask(record)
        monkeypatch.undo()
        graph = PluginRecord("graph", "byoc.runtimes", "byoc_core.runtime.graph_plugin", "byoc-core", "1")
        assert examiner.ask(graph)[1] == Status(ok=True)
    assert (broken.state, broken.reason, status) == (
        "broken",
        "during import or the status query: no result within 1 s",
        None,
    )
    assert broken.remedy == "Report this to the authors of byoc-slow."
