"""The last published wheels beside those of this checkout, in fresh processes: a misfit is said, and never a traceback.

``nox -s versions`` runs this where the dependencies are installed and byoc is not; the packages of a release stand in a
folder of their own, installed by pip, in front of everything else on the path.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from packaging.version import Version

WHEELS = os.environ.get("BYOC_WHEELS")
if WHEELS is None:
    pytest.skip("`nox -s versions` says where the wheels of this checkout are", allow_module_level=True)

PLUGINS = ("examplejson", "ccompiler")
OLD = max((path for path in Path(__file__).parent.glob("[0-9]*")), key=lambda path: Version(path.name))
NEW = Path(WHEELS)
AGES = {"old": OLD, "new": NEW}
A, B = np.array([[3, -1, 2], [0, 5, -7]], "float32"), np.ones((2, 3), "float32")
SORTED = [[0, 3, 4], [0, 1, 6]]


@dataclass(frozen=True)
class Installation:
    """Core and plugins, each old or new.

    Attributes:
        folder: where pip put them.
        core: the core's version.
        plugin: the plugins' version.
        requirement: the range of core versions that the plugins ask for.
        work: where commands run; holds ``m.onnx`` and its inputs.
    """

    folder: Path
    core: str
    plugin: str
    requirement: str
    work: Path

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs Python in a fresh process."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("BYOC_", "PYTHON"))}
        environment = {"PYTHONPATH": str(self.folder), "COLUMNS": "400", "BYOC_CACHE_DIR": str(self.work / "cache")}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.work,
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert "Traceback" not in done.stderr + done.stdout
        return done

    def byoc(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command."""
        return self.python("-c", "from byoc_core.cli.main import main; main()", *arguments)

    def run_model(self, artifact: str) -> list[object]:
        """Runs an artifact on ``A`` and ``B``."""
        arguments = ("--input", "a=a.npy", "--input", "b=b.npy", "-o", "y.npz", "--allow-native")
        done = self.byoc("run", artifact, *arguments)
        assert done.returncode == 0, done.stderr
        with np.load(self.work / "y.npz") as outputs:
            (result,) = outputs.values()
            return list(result.tolist())


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Installation]:
    """Gives a function that installs a core and plugins, each old or new; once."""
    made: dict[tuple[str, str], Installation] = {}

    def find_wheel(age: str, name: str) -> Path:
        (wheel,) = AGES[age].glob(f"byoc_{name}-*.whl")
        return wheel

    def install_packages(core: str, plugin: str) -> Installation:
        folder = tmp_path_factory.mktemp(f"{core}-core-{plugin}-plugins")
        wheels = [find_wheel(core, "core"), *(find_wheel(plugin, name) for name in PLUGINS)]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*pip, "--target", str(folder / "site"), *map(str, wheels)], check=True)
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "aby"]
        nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
        graph = helper.make_graph(nodes, "g", infos[:2], infos[2:])
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "m.onnx")
        for name, array in (("a", A), ("b", B)):
            np.save(folder / f"{name}.npy", array)
        core_version, plugin_version = (wheel.name.split("-")[1] for wheel in wheels[:2])
        requirement = _core_requirement(folder / "site")
        return Installation(folder / "site", core_version, plugin_version, requirement, folder)

    def install_once(core: str, plugin: str) -> Installation:
        if (core, plugin) not in made:
            made[core, plugin] = install_packages(core, plugin)
        return made[core, plugin]

    return install_once


def _core_requirement(site: Path) -> str:
    """Gives the range that the plugins state, as byoc prints it."""
    (metadata,) = site.glob("byoc_examplejson-*.dist-info/METADATA")
    (line,) = (x for x in metadata.read_text().splitlines() if x.startswith("Requires-Dist: byoc-core"))
    return ",".join(sorted(line.removeprefix("Requires-Dist: byoc-core").split(",")))


@pytest.fixture(params=[("new", "old"), ("old", "new")], ids=["new-core-old-plugins", "old-core-new-plugins"])
def mixed(request: pytest.FixtureRequest, install: Callable[[str, str], Installation]) -> Installation:
    """Core and plugins of different releases."""
    return install(*request.param)


@pytest.fixture(params=["new", "old"])
def matched(request: pytest.FixtureRequest, install: Callable[[str, str], Installation]) -> Installation:
    """Core and plugins of one release."""
    return install(request.param, request.param)


def test_the_wheels_are_of_different_releases(install: Callable[[str, str], Installation]) -> None:
    old, new = install("old", "old"), install("new", "new")
    assert Version(old.core) < Version(new.core)
    assert old.requirement != new.requirement


def test_the_core_is_imported_and_loads_no_plugin(mixed: Installation) -> None:
    script = f"""
import sys, byoc_core
assert byoc_core.__file__.startswith({str(mixed.folder)!r}), byoc_core.__file__
assert byoc_core.__version__ == {mixed.core!r}, byoc_core.__version__
print([record.name for record in byoc_core.backends.list()], byoc_core.backends.names())
assert not any(name.startswith(("byoc_examplejson", "byoc_ccompiler")) for name in sys.modules)
"""
    done = mixed.python("-W", "error", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['ccompiler', 'examplejson', 'host'] ('host',)\n"


def _reason(mixed: Installation) -> str:
    """Return the reason printed by the installed core for a plugin outside its range."""
    subject = "it" if mixed.core.startswith("0.1.") else "the plugin"
    return f"{subject} needs byoc-core{mixed.requirement}, and {mixed.core} is installed"


def test_listings_say_which_range_and_what_to_install(mixed: Installation) -> None:
    listed, found = mixed.byoc("backends"), mixed.byoc("doctor")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert (found.returncode, found.stderr) == (1, "")
    backends, runtimes = (
        [" ".join(line.split()) for line in part.splitlines()] for part in listed.stdout.split("\nRuntimes")
    )
    advice = found.stdout.splitlines()
    reason = _reason(mixed)
    for name, kind, rows in (
        ("examplejson", "backend", backends),
        ("ccompiler", "backend", backends),
        ("examplejson", "runtime", runtimes),
    ):
        remedy = f"Install versions that fit: pip install --upgrade byoc-{name} byoc-core."
        assert f"{name} byoc-{name} {mixed.plugin} incompatible no {reason}. {remedy}" in rows
        place = advice.index(f"fault  {kind} `{name}` (byoc-{name} {mixed.plugin}): incompatible: {reason}")
        assert advice[place + 1].strip() == remedy
    assert advice[-1] == "3 faults found."


@pytest.mark.parametrize("name", PLUGINS)
def test_a_misfit_that_is_asked_for_is_an_error(mixed: Installation, name: str) -> None:
    done = mixed.byoc("compile", "m.onnx", "-o", "misfit.byoc", "--backend", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: plugin `{name}` (byoc-{name} {mixed.plugin}): cannot be used (incompatible): "
        f"{_reason(mixed)}. "
        f"Install versions that fit: pip install --upgrade byoc-{name} byoc-core.\n"
    )
    assert not (mixed.work / "misfit.byoc").exists()


@pytest.mark.parametrize("backends", [(), ("--backend", "host")], ids=["none-named", "host"])
def test_the_host_works_beside_misfits(mixed: Installation, backends: tuple[str, ...]) -> None:
    done = mixed.byoc("compile", "m.onnx", "-o", "m.byoc", *backends)
    assert (done.returncode, done.stderr) == (0, "")
    assert mixed.run_model("m.byoc") == np.maximum(A + B, 0).tolist()


def test_what_fits_works(matched: Installation) -> None:
    both = ("--backend", "examplejson", "--backend", "ccompiler")
    done = matched.byoc("compile", "m.onnx", "-o", "m.byoc", *both, "--fallback", "error")
    assert (done.returncode, done.stderr) == (0, "")
    assert "examplejson" in done.stdout
    assert matched.run_model("m.byoc") == np.maximum(A + B, 0).tolist()
    assert matched.byoc("doctor").returncode == 0


needs_x86 = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the sample holds native code for x86-64 Linux"
)


@needs_x86
def test_an_artifact_of_the_last_release_runs(install: Callable[[str, str], Installation]) -> None:
    for age in ("old", "new"):
        installed = install(age, age)
        assert installed.run_model(str(OLD / "sample.byoc")) == SORTED
        assert installed.byoc("verify", str(OLD / "sample.byoc")).returncode == 0


@needs_x86
def test_an_artifact_whose_runtime_does_not_fit_says_so(mixed: Installation) -> None:
    done = mixed.byoc("run", str(OLD / "sample.byoc"), "--allow-native")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: plugin `examplejson` (byoc-examplejson {mixed.plugin}): cannot be used (incompatible): "
        f"{_reason(mixed)}. "
        "Install versions that fit: pip install --upgrade byoc-examplejson byoc-core.\n"
    )
