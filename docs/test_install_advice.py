"""Commands advised by the pages: no command installs byoc by name while no index has byoc.

``[tool.byoc]`` of the root ``pyproject.toml`` names the index. Changelogs and decision records describe the past.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from release.project import EXAMPLES, PACKAGES, read_settings

ROOT = Path(__file__).parents[1]
SUFFIXES = {".md", ".tmpl", ".yml", ".yaml"}
INSTALL = re.compile(r"\bpip (?:install|download|wheel)\b([^`\n#]*)")
BY_NAME = re.compile(r"""(?<![\w./-])["']?byoc-[\w@-]+""")
INDEX_PAGE = re.compile(r"https://pypi\.org/project/byoc\b")
ELSEWHERE = ("--find-links", "--index-url", "--extra-index-url")
NOWHERE = "No package index has byoc yet"


def find_pages() -> list[Path]:
    """Return the pages with advice for today."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (Path(name) for name in listed.split("\0") if Path(name).suffix in SUFFIXES)
    return [path for path in paths if "adr" not in path.parts and not path.name.startswith("CHANGELOG")]


def find_bad_advice(text: str) -> list[str]:
    """Return the commands of a page installing byoc by name from the default index, and links to byoc's pages there."""
    commands = [
        found[0].strip()
        for found in INSTALL.finditer(text.replace("\\\n", " "))
        if BY_NAME.search(found[1]) and not any(option in found[1] for option in ELSEWHERE)
    ]
    return [*commands, *INDEX_PAGE.findall(text)]


def test_pages_install_byoc_by_name_only_if_an_index_has_it() -> None:
    texts = {path.as_posix(): (ROOT / path).read_text("utf-8") for path in find_pages()}
    assert {"README.md", "docs/publishing.md", "core/README.md"} <= set(texts)
    if read_settings().index:
        assert [name for name, text in texts.items() if NOWHERE in text] == []
    else:
        advised = {name: find_bad_advice(text) for name, text in texts.items()}
        assert {name: commands for name, commands in advised.items() if commands} == {}
        readmes = ["README.md", *(f"{folder}/README.md" for folder in (*PACKAGES, *EXAMPLES))]
        assert [name for name in readmes if NOWHERE not in texts[name]] == []


@pytest.mark.parametrize(
    "line",
    [
        "    $ pip install byoc-core byoc-conformance",
        '    pip install "byoc-core[onnx]" byoc-ccompiler',
        "run `uv pip install byoc-@name@`",
        "      - run: pip install dist/*.whl byoc-conformance",
        "pip install --upgrade \\\n    byoc-core",
        "pip download 'byoc-dnnl>=0.2'",
        "[byoc](https://pypi.org/project/byoc-core/)",
    ],
)
def test_bad_advice_is_found(line: str) -> None:
    assert find_bad_advice(line) != []


@pytest.mark.parametrize(
    "line",
    [
        'pip install "./core[onnx]" ./plugins/ccompiler',
        "pip install --find-links wheels byoc-core",
        "pip wheel --no-deps --wheel-dir wheels CHECKOUT/core CHECKOUT/conformance",
        "pip install ziglang  # not byoc-ccompiler",
        "cd byoc-mynpu && pip install -e '.[test]'",
        "pip install -e ~/byoc-mynpu",
    ],
)
def test_good_advice_is_let_pass(line: str) -> None:
    assert find_bad_advice(line) == []
