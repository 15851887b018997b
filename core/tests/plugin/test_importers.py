"""Importer plugins of third parties on disk, in fresh processes: imports, faults, clashes, listings."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

OPS = """
    import numpy as np
    from byoc_core.opset import AttrKind, AttrSpec, OnnxSpelling, OpDef, OperandSpec, Rounding, Rule, unary_op

    CUBE_ROOT = unary_op(
        "toy.cube_root",
        "Return the cube root.",
        np.cbrt,
        rounding=Rounding(Rule.ULP, 2.0),
        onnx=OnnxSpelling("CubeRoot", domain="com.toy"),
    )


    def add_number(x, number):
        return x + np.float32(number)


    ADD_NUMBER = OpDef(
        "toy.add_number",
        (OperandSpec("x"),),
        attrs=(AttrSpec("number", AttrKind.FLOAT),),
        infer=lambda context: (context.tensor(0),),
        kernel=add_number,
    )
    OPS = (CUBE_ROOT, ADD_NUMBER)
"""

IMPORTERS = """
    from byoc_core.frontend.hooks import OnnxImporters, hookimpl
    from byoc_core.frontend.onnx import NodeContext
    from toy_ops import OPS


    def import_add_number(node: NodeContext):
        return [node.emit("toy.add_number", node.value(0), number=node.attr_float("number"))]


    def import_double(node: NodeContext):
        return [node.emit("add", node.value(0), node.value(0))]


    def import_failing(node: NodeContext):
        raise KeyError("weights")


    @hookimpl
    def byoc_onnx_importers():
        return OnnxImporters(
            {
                ("com.toy", "AddNumber"): import_add_number,
                ("com.toy", "Double"): import_double,
                ("com.toy", "Failing"): import_failing,
                ("com.toy", "Textual"): lambda node: "y",
                ("com.toy", "Refusing"): lambda node: node.value(7),
                ("ai.onnx", "ToyOfTheStandard"): import_double,
            },
            ops=OPS,
        )
"""

RUN_HALF = """
    from byoc_core.runtime.hooks import RuntimeInfo, hookimpl
    from toy_ops import OPS


    @hookimpl
    def byoc_runtime_info():
        return RuntimeInfo("toy")


    @hookimpl
    def byoc_kernels():
        return {op.name: op.kernel for op in OPS}
"""

ENTRY_POINTS = """
    [byoc.importers]
    toy = toy_importers
    [byoc.runtimes]
    toy = toy_run
"""

MODELS = '''
import sys
import numpy as np
import byoc_core
from onnx import helper

def make_model(*op_types, domain="com.toy"):
    """Return a model with a node of each operator, one after another."""
    names = ["x", *(f"h{index}" for index in range(len(op_types) - 1)), "y"]
    attrs = {"AddNumber": {"number": 1.5}}
    nodes = [
        helper.make_node(op_type, [before], [after], domain=domain, name=op_type, **attrs.get(op_type, {}))
        for op_type, before, after in zip(op_types, names, names[1:])
    ]
    x, y = (helper.make_tensor_value_info(name, 1, ["n", 3]) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.toy", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets)

def tell(*op_types, domain="com.toy"):
    """Print the error of an import."""
    try:
        byoc_core.from_onnx(make_model(*op_types, domain=domain))
    except byoc_core.errors.ByocError as error:
        notes = "".join(f" [{note}]" for note in getattr(error, "__notes__", ()))
        print(type(error).__name__, str(error).partition(" To import")[0] + notes)
    else:
        print("imported")

x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
'''

FAULTY = """
    from byoc_core.frontend.hooks import OnnxImporters, hookimpl
    {first}

    @hookimpl
    def byoc_onnx_importers():
        {hook}
"""


@pytest.fixture
def toy(site: Site) -> Site:
    """The site containing the package."""
    modules = {"toy_ops": OPS, "toy_importers": IMPORTERS, "toy_run": RUN_HALF}
    site.install("byoc-toy", ENTRY_POINTS, modules)
    return site


def install_importers(site: Site, name: str, hook: str, first: str = "", version: str = "1.0") -> None:
    """Install a distribution with a single importer plugin of a hook's body."""
    module = FAULTY.format(first=first, hook=hook)
    site.install(
        f"byoc-{name}",
        f"[byoc.importers]\n{name} = {name}_importers\n",
        {f"{name}_importers": module},
        version=version,
    )


def test_a_model_with_operators_of_a_plugin(toy: Site, tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    toy.run(
        MODELS
        + f"""
module = byoc_core.from_onnx(make_model("AddNumber", "CubeRoot", "Double"))
assert [binding.op.name for binding in module["main"].bindings] == ["toy.add_number", "toy.cube_root", "add"]
assert {{"toy.add_number", "toy.cube_root"}} < module.ops.keys()
assert byoc_core.parse(str(module), ops=module.ops) == module
import warnings
warnings.filterwarnings("ignore", "backend `.*` cannot compile here")  # a device without a driver, for example
for backends in ([], [name for name in byoc_core.backends.names() if name != "host"]):
    executable = byoc_core.build(module, backends)
    np.testing.assert_allclose(byoc_core.VirtualMachine(executable)["main"](x), 2 * np.cbrt(x + 1.5), rtol=1e-6)
byoc_core.build(module, []).save({str(path)!r})
"""
    )
    (toy.folder / "toy_importers.py").unlink()
    toy.run_fresh(
        f"""
import sys
import numpy as np
import byoc_core

main = byoc_core.VirtualMachine(byoc_core.load({str(path)!r}))["main"]
x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
np.testing.assert_allclose(main(x), 2 * np.cbrt(x + 1.5), rtol=1e-6)
assert "toy_run" in sys.modules
assert not {{"onnx", "byoc_core.ir", "byoc_core.frontend", "byoc_core.backend"}} & sys.modules.keys()
"""
    )


def test_other_models_open_no_plugin(toy: Site) -> None:
    told = toy.run_fresh(
        MODELS
        + """
byoc_core.from_onnx(make_model("Relu", "Exp", domain=""))
print({"byoc_core.frontend.importers", "byoc_core.plugin.handle", "pluggy"} & sys.modules.keys())
byoc_core.register_op("com.mine", "Mine", lambda node: node.value(0))
byoc_core.from_onnx(make_model("Mine", domain="com.mine"))
print("toy_importers" in sys.modules)
byoc_core.from_onnx(make_model("Double"))
print("toy_importers" in sys.modules)
"""
    )
    assert told.splitlines() == ["set()", "False", "True"]


def test_operators_of_the_standard_domain_are_added(toy: Site) -> None:
    told = toy.run(
        MODELS
        + """
for domain in ("", "ai.onnx"):
    module = byoc_core.from_onnx(make_model("ToyOfTheStandard", domain=domain))
    print([binding.op.name for binding in module["main"].bindings])
"""
    )
    assert told.splitlines() == ["['add']", "['add']"]


def test_faults_of_importers_name_the_plugin(toy: Site) -> None:
    told = toy.run(MODELS + 'for op_type in ("Failing", "Textual", "Refusing", "AddNumber"): tell(op_type)\n')
    where = "plugin `toy` (byoc-toy 1.0), importer of `com.toy.{}`"
    assert told.splitlines() == [
        (
            f"HookError {where.format('Failing')}: raised KeyError: 'weights'; got ONNX model, node `Failing` "
            "(Failing). This is a fault of byoc-toy, not of byoc-core."
        ),
        (
            f"HookError {where.format('Textual')}: returned a value of the type str; got ONNX model, node `Textual` "
            "(Textual), expected a sequence with the imported form of each output"
        ),
        (f"FrontendError ONNX model, node `Refusing` (Refusing): lacks input 7 [raised by {where.format('Refusing')}]"),
        "imported",
    ]


def test_a_registered_operator_comes_before_a_plugin(toy: Site) -> None:
    told = toy.run(
        MODELS
        + """
byoc_core.register_op("com.toy", "Double", lambda node: node.value(0))
print(byoc_core.from_onnx(make_model("Double"))["main"].bindings, "toy_importers" in sys.modules)
"""
    )
    assert told.strip() == "() False"


def test_an_op_of_an_installed_runtime_needs_no_registration_elsewhere(toy: Site, tmp_path: Path) -> None:
    """A registered op of a package is saved with the package's runtime; another op of the same name is not."""
    path = tmp_path / "model.byoc"
    told = toy.run(
        MODELS
        + f"""
from dataclasses import replace
from toy_ops import CUBE_ROOT

for op in (CUBE_ROOT, replace(CUBE_ROOT, kernel=lambda x: x)):
    byoc_core.register_op("com.mine", "Root", op=op)
    executable = byoc_core.build(byoc_core.from_onnx(make_model("Root", domain="com.mine")))
    print(executable.modules[0].needed_runtimes, byoc_core.VirtualMachine(executable)["main"](np.full((1, 3), 8, "f4")))
    executable.save({str(path)!r})
    loaded = byoc_core.VirtualMachine(byoc_core.load({str(path)!r}))["main"]
    print(loaded(np.full((1, 3), 8, "f4")))
"""
    )
    assert told.splitlines() == [
        "('toy',) [[2. 2. 2.]]",
        "[[2. 2. 2.]]",
        "('graph',) [[8. 8. 8.]]",
        "[[8. 8. 8.]]",
    ]


UNUSABLE = {
    "absent": (
        "import absent_library",
        "return OnnxImporters()",
        (
            "importing `absent_importers` raised ModuleNotFoundError: No module named 'absent_library'. Install the "
            "missing module `absent_library`; if it is the plugin's own, pip install --force-reinstall byoc-absent."
        ),
    ),
    "raising": (
        "",
        "raise OSError('no file')",
        (
            "hook `byoc_onnx_importers`: raised OSError: no file. Report this to the authors of byoc-raising."
        ),
    ),
    "untyped": (
        "",
        "return {}",
        (
            "hook `byoc_onnx_importers`: returned a value of the wrong type; got dict, expected OnnxImporters. Report "
            "this to the authors of byoc-untyped."
        ),
    ),
    "listing": (
        "",
        "return OnnxImporters([])",
        (
            "hook `byoc_onnx_importers`: returned a value of the wrong type; got list, expected Mapping. Report this "
            "to the authors of byoc-listing."
        ),
    ),
    "misnaming": (
        "",
        "return OnnxImporters({'Scale': print})",
        (
            "hook `byoc_onnx_importers`: returned an item other than a function by domain and operator; got 'Scale': "
            "builtin_function_or_method, expected ('com.example', 'Scale'): function. Report this to the authors of "
            "byoc-misnaming."
        ),
    ),
    "valued": (
        "",
        "return OnnxImporters({('com.example', 'Scale'): 3})",
        (
            "hook `byoc_onnx_importers`: returned an item other than a function by domain and operator; got "
            "('com.example', 'Scale'): int, expected ('com.example', 'Scale'): function. Report this to the authors of "
            "byoc-valued."
        ),
    ),
    "opless": (
        "",
        "return OnnxImporters({}, ops=['add'])",
        (
            "hook `byoc_onnx_importers`: returned an item other than an op; got str, expected OpDef. Report this to "
            "the authors of byoc-opless."
        ),
    ),
    "doubling": (
        "from toy_ops import CUBE_ROOT",
        "return OnnxImporters({}, ops=[CUBE_ROOT, CUBE_ROOT])",
        (
            "hook `byoc_onnx_importers`: returned two ops of the same name; got toy.cube_root. Report this to the "
            "authors of byoc-doubling."
        ),
    ),
    "usurping": (
        "from dataclasses import replace\n    from toy_ops import CUBE_ROOT",
        "return OnnxImporters({}, ops=[replace(CUBE_ROOT, name='exp')])",
        (
            "hook `byoc_onnx_importers`: returned another op under the name of a core op; got exp. Report this to the "
            "authors of byoc-usurping."
        ),
    ),
    "replacing": (
        "",
        "return OnnxImporters({('', 'Conv'): print})",
        (
            "hook `byoc_onnx_importers`: imports an operator with an importer in byoc-core; got Conv. Report this to "
            "the authors of byoc-replacing."
        ),
    ),
    "spelling": (
        "from dataclasses import replace; from byoc_core.opset import OnnxSpelling; from toy_ops import CUBE_ROOT",
        "return OnnxImporters({}, ops=[replace(CUBE_ROOT, onnx=OnnxSpelling('Exp', domain='ai.onnx'))])",
        (
            "hook `byoc_onnx_importers`: imports an operator with an importer in byoc-core; got Exp. Report this to "
            "the authors of byoc-spelling."
        ),
    ),
    "hookless": (
        "hookimpl = lambda function: function",
        "return OnnxImporters()",
        "the function `byoc_onnx_importers` is not marked as a hook. Decorate it with `@hookimpl`.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_plugin_is_named_where_it_may_be_needed(toy: Site, name: str) -> None:
    first, hook, reason = UNUSABLE[name]
    install_importers(toy, name, hook, first)
    told = toy.run(
        MODELS + 'tell("Relu", domain="")\ntell("Double")\ntell("Unknown", domain="com.example")\ntell("Double")\n'
    )
    assert told.splitlines() == [
        "imported",
        "imported",
        (
            "UnsupportedOpsError ONNX model: 1 of 1 nodes have unsupported ops; got com.example.Unknown (1x). "
            f"The plugin `{name}` (byoc-{name} 1.0) cannot be used (broken): {reason}"
        ),
        "imported",
    ]


def test_an_incompatible_plugin_is_named_without_its_import(toy: Site) -> None:
    (toy.folder / "new_importers.py").write_text("raise SystemExit(3)\n")
    toy.install("byoc-new", "[byoc.importers]\nnew = new_importers\n", requires=("byoc-core>=99",))
    told = toy.run(MODELS + 'tell("Double")\ntell("Unknown")\n').splitlines()
    assert told[0] == "imported"
    assert (
        "The plugin `new` (byoc-new 1.0) cannot be used (incompatible): the plugin needs byoc-core>=99, and " in told[1]
    )
    assert told[1].endswith("Install versions that fit: pip install --upgrade byoc-new byoc-core.")


RIVAL = "return OnnxImporters({('com.toy', 'Double'): lambda node: [node.value(0)]})"


def test_two_plugins_of_one_operator(toy: Site) -> None:
    install_importers(toy, "rival", RIVAL, version="2.0")
    count = MODELS + 'print(len(byoc_core.from_onnx(make_model("Double"))["main"].bindings))\n'
    told = toy.run(MODELS + 'tell("AddNumber")\ntell("Double")\n').splitlines()
    assert told == [
        "imported",
        (
            "PluginError operator `com.toy.Double`: is imported by several plugins; got plugin `rival` (byoc-rival "
            "2.0), plugin `toy` (byoc-toy 1.0). Choose a distribution with BYOC_PREFER=com.toy.Double=byoc-rival, or "
            "for all operators of the domain with BYOC_PREFER=com.toy=byoc-rival; or uninstall a distribution."
        ),
    ]
    assert toy.run(count, BYOC_PREFER="com.toy.Double=byoc-rival").strip() == "0"
    assert toy.run(count, BYOC_PREFER="com.toy.Double=byoc_toy").strip() == "1"
    assert toy.run(count, BYOC_PREFER="com.toy=byoc-rival").strip() == "0"
    assert toy.run(count, BYOC_PREFER="com.toy=byoc-rival,com.toy.Double=byoc-toy").strip() == "1"
    third = toy.run(MODELS + 'tell("Double")\n', BYOC_PREFER="com.toy=byoc-other")
    assert third.startswith("PluginError operator `com.toy.Double`: is imported by several plugins")


def test_two_plugins_of_one_distribution(toy: Site) -> None:
    module = FAULTY.format(first="", hook=RIVAL)
    entry_points = "[byoc.importers]\none = twin_importers\ntwo = twin_importers\n"
    (toy.folder / "byoc_toy-1.0.dist-info" / "entry_points.txt").unlink()
    toy.install("byoc-twin", entry_points, {"twin_importers": module})
    told = toy.run(MODELS + 'tell("Double")\n')
    assert told.strip().endswith(
        "got plugin `one` (byoc-twin 1.0), plugin `two` (byoc-twin 1.0). Report this to the authors of byoc-twin."
    )


def test_two_distributions_of_one_name(toy: Site) -> None:
    """Names of plugins clash as in the other groups."""
    toy.install("rival-toy", "[byoc.importers]\ntoy = toy_importers\n")
    told = toy.run(MODELS + 'tell("Double")\n')
    assert (
        "The plugin `toy` (byoc-toy 1.0) cannot be used (clash): the name is also claimed by rival-toy 1.0. Uninstall "
        "a distribution, or choose this distribution with BYOC_PREFER=toy=byoc-toy." in told
    )
    assert toy.run(MODELS + 'tell("Double")\n', BYOC_PREFER="toy=byoc-toy").strip() == "imported"


def byoc(site: Site, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("BYOC_")}
    path = os.pathsep.join(filter(None, [str(site.folder), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", "from byoc_core.cli.main import main; main()", command],
        env={**inherited, "PYTHONPATH": path, "COLUMNS": "400", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_listings_give_state_reason_and_remedy(toy: Site) -> None:
    install_importers(toy, "exiting", "return OnnxImporters()", "raise SystemExit(0)")
    install_importers(toy, "dying", "return OnnxImporters()", "import os; os._exit(3)")
    listed, found = byoc(toy, "backends"), byoc(toy, "doctor", BYOC_PREFER="com.toy.Double=byoc-toy")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert (found.returncode, found.stderr) == (1, "")
    table = [" ".join(line.split()) for line in listed.stdout.partition("Importers")[2].splitlines()]
    assert "toy byoc-toy 1.0 available yes 6 operators of com.toy, 1 operator of the standard domain" in table
    reasons = {
        "exiting": (
            "importing `exiting_importers` raised SystemExit: 0",
            "Report this to the authors of byoc-exiting, or pip uninstall byoc-exiting.",
        ),
        "dying": (
            "during import or the status query: the process ended with exit status 3",
            "Report this to the authors of byoc-dying.",
        ),
    }
    advice = found.stdout.splitlines()
    for name, (reason, remedy) in reasons.items():
        assert f"{name} byoc-{name} 1.0 broken no {reason}. {remedy}" in table
        place = advice.index(f"fault  importer `{name}` (byoc-{name} 1.0): broken: {reason}")
        assert advice[place + 1] == f"       {remedy}"
    fine = "can import: 6 operators of com.toy, 1 operator of the standard domain"
    assert f"fine   importer `toy` (byoc-toy 1.0): {fine}" in advice
    assert not any("com.toy.Double" in line and line.startswith("note") for line in advice)


def test_without_importers_there_is_no_table(site: Site) -> None:
    """Plugins beside the tests have a table."""
    assert ("Importers" in byoc(site, "backends").stdout) is bool(entry_points(group="byoc.importers"))
