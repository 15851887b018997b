"""Write the pages and drawings generated from the code: ``python -m docs.generate``, from the repository's root."""

from __future__ import annotations

from pathlib import Path

from docs.c_runtime_page import with_c_runtime
from docs.dnnl_ops import dnnl_ops_page
from docs.drawings.all_drawings import DRAWINGS
from docs.hook_pages import hook_pages
from docs.op_reference import op_reference_page
from docs.op_table import op_table_page
from docs.promise_table import with_promises
from docs.stable_modules import with_stable_modules
from docs.type_reference import type_reference_page

__all__ = ["generated_pages", "main"]

DOCS = Path(__file__).parent


def generated_pages() -> dict[Path, str]:
    """Return the right text of each generated page and drawing, by file."""
    conformance, stability, c_runtime = (DOCS / f"{name}.md" for name in ("conformance", "api-stability", "c-runtime"))
    pages = {DOCS / "hooks" / name: text for name, text in hook_pages().items()}
    pages |= {DOCS / "drawings" / name: draw() for name, draw in DRAWINGS.items()}
    pages[DOCS / "ccompiler-ops.md"] = op_table_page()
    pages[DOCS / "dnnl-ops.md"] = dnnl_ops_page()
    pages[DOCS / "ops.md"] = op_reference_page()
    pages[DOCS / "plugin-types.md"] = type_reference_page()
    pages[conformance] = with_promises(conformance.read_text("utf-8"))
    pages[stability] = with_stable_modules(stability.read_text("utf-8"))
    pages[c_runtime] = with_c_runtime(c_runtime.read_text("utf-8"))
    return pages


def main() -> None:
    """Write the pages and drawings."""
    for path, text in generated_pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
