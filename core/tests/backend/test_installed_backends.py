"""Installed faulty backends, from discovery to the message: quarantined, while the others work."""

from __future__ import annotations

from pathlib import Path

import pytest
from byoc_core.backend import Backends
from byoc_core.errors import PluginError
from byoc_core.plugin.discovery import discover
from byoc_core.plugin.settings import PluginSettings

pytestmark = pytest.mark.asks_for_plugins

HEAD = "from byoc_core.backend.hooks import BackendInfo, CodegenResult, hookimpl\n"
CODEGEN = "@hookimpl\ndef byoc_codegen(functions):\n    return CodegenResult(None)\n"
CODE = {
    "good": HEAD + CODEGEN + "@hookimpl\ndef byoc_backend_info():\n    return BackendInfo('good')\n",
    "renamed": HEAD + CODEGEN + "@hookimpl\ndef byoc_backend_info():\n    return BackendInfo('other')\n",
    "untyped": HEAD + CODEGEN + "@hookimpl\ndef byoc_backend_info():\n    return 'untyped'\n",
    "raising": HEAD + CODEGEN + "@hookimpl\ndef byoc_backend_info():\n    raise OSError('no device')\n",
    "halved": HEAD + "@hookimpl\ndef byoc_backend_info():\n    return BackendInfo('halved')\n",
    "empty": "",
    "misspelt": HEAD + CODEGEN.replace("byoc_codegen", "byoc_codgen"),
    "exiting": "import sys\nsys.exit(3)\n",
}
FAULTS = {
    "renamed": "hook `byoc_backend_info`: returned a name different from the entry point's name; "
    "got 'other', expected 'renamed'",
    "untyped": "hook `byoc_backend_info`: returned a value of the wrong type; got str, expected BackendInfo",
    "raising": "hook `byoc_backend_info`: raised OSError: no device",
    "halved": "the plugin does not implement the hook `byoc_codegen`",
    "empty": "the plugin implements no hook",
    "misspelt": "there is no hook `byoc_codgen`",
    "exiting": "importing `installed_exiting` raised SystemExit: 3",
}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backends:
    for name, code in CODE.items():
        (tmp_path / f"installed_{name}.py").write_text(code)
        info = tmp_path / f"byoc_{name}-1.0.dist-info"
        info.mkdir()
        requires = "Requires-Dist: byoc-core>=0.1\n"
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: byoc-{name}\nVersion: 1.0\n{requires}")
        (info / "entry_points.txt").write_text(f"[byoc.backends]\n{name} = installed_{name}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return Backends(discover("byoc.backends", settings=PluginSettings(), path=[str(tmp_path)]))


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_backend_is_quarantined_with_its_reason(registry: Backends, name: str) -> None:
    assert set(registry.names()) == set(CODE)
    with pytest.raises(PluginError) as caught:
        registry.get(name)
    prefix = f"plugin `{name}` (byoc-{name} 1.0): cannot be used (broken): "
    assert str(caught.value).startswith(prefix + FAULTS[name])
    assert caught.value.hint
    assert set(registry.names()) == set(CODE) - {name}
    (record,) = (record for record in registry.list() if record.name == name)
    assert (record.state, record.reason.startswith(FAULTS[name])) == ("broken", True)
    assert registry.get("good").name == "good"
    with pytest.raises(PluginError, match="cannot be used"):
        registry.get(name)


def test_a_faulty_backend_never_comes_back_as_another_error(registry: Backends) -> None:
    messages = []
    for _ in range(2):
        with pytest.raises(PluginError) as caught:
            registry.get("raising")
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
