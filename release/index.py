"""A package index on this machine: the simple repository API over the files of a release.

Source: the specification "Simple repository API" of the Python Packaging User Guide (PEP 503), HTML form.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import html
import shutil
import threading
from collections.abc import Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from packaging.utils import parse_sdist_filename, parse_wheel_filename

__all__ = ["serve_index", "write_index"]


def write_index(files: Sequence[Path], folder: Path) -> None:
    """Empty a folder and write the pages of an index over copies of the files."""
    shutil.rmtree(folder, ignore_errors=True)
    packages: dict[str, list[Path]] = {}
    for path in files:
        is_wheel = path.suffix == ".whl"
        package = parse_wheel_filename(path.name)[0] if is_wheel else parse_sdist_filename(path.name)[0]
        packages.setdefault(package, []).append(path)
    for name, paths in sorted(packages.items()):
        page = folder / "simple" / name
        page.mkdir(parents=True)
        for path in paths:
            shutil.copy(path, page)
        _write_page(
            page, {f"{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}": path.name for path in paths}
        )
    _write_page(folder / "simple", {f"{name}/": name for name in sorted(packages)})


@contextlib.contextmanager
def serve_index(folder: Path) -> Iterator[str]:
    """Serve an index on the loopback interface, and yield the address."""
    handler = functools.partial(_SilentHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple"
        finally:
            server.shutdown()
            thread.join()


def _write_page(folder: Path, links: dict[str, str]) -> None:
    lines = "".join(f'<a href="{html.escape(link)}">{html.escape(text)}</a><br>\n' for link, text in links.items())
    (folder / "index.html").write_text(f"<!DOCTYPE html>\n<html><body>\n{lines}</body></html>\n", "utf-8")


class _SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""
