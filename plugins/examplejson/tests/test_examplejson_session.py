"""Sessions on a backend of static shapes: a model from the cache compiles the sizes of its calls."""

from __future__ import annotations

from pathlib import Path

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.runtime.specialised import SpecialisedModule

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3] x, float[n, 3] z) => (float[n, 3] y) { y = Add(x, z) }
"""


def compiled_sizes(session: byoc_core.Session) -> list[int]:
    (module,) = [module for module in session.executable.modules if isinstance(module, SpecialisedModule)]
    (name,) = module.function_names
    return sorted(dict(sizes)["n"] for sizes in module.compiled_sizes(name))


def test_a_model_of_the_cache_compiles_new_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    onnx.save_model(onnx.parser.parse_model(MODEL), path)
    stages: list[str] = []
    for _ in range(2):
        session = byoc_core.Session(path, ["examplejson"], progress=stages.append)
        assert stages.count("import") == 1  # the second session finds the model in the cache
        assert session.backends == ("examplejson",)
        session.warm_up(n=[1, 4])
        for n in (1, 2, 5):
            x = np.full((n, 3), n, np.float32)
            np.testing.assert_array_equal(session(x, z=x)["y"], x + x)
        assert compiled_sizes(session) == [1, 2, 4, 5]
