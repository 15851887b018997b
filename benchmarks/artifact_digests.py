"""Digests of the artifacts of the zoo, showing whether a change of the code changes the artifacts.

    python -m benchmarks.artifact_digests > before.json
    python -m benchmarks.artifact_digests --compare before.json

Each network of the zoo is compiled for each set of backends and saved. Each member of the artifact has a digest.
The manifest and the offload report have a digest for each field. ``--compare`` lists the differing members, and ends
with status 1 if any differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import byoc_core
from byoc_core.artifact import Executable
from byoc_core.ir import IRModule

from benchmarks.zoo.light import list_light_models, load_light_model
from benchmarks.zoo.networks import NETWORKS

BACKENDS = ((), ("ccompiler",), ("dnnl",), ("dnnl", "ccompiler"))
_MANIFEST = "manifest.json"

Digests = dict[str, str]


def list_networks() -> Iterator[tuple[str, IRModule]]:
    """Yield the networks by name: the smallest size of each, all light models."""
    for name, network in NETWORKS.items():
        yield name, byoc_core.from_onnx(network.build(next(iter(network.configs)), "modern"))
    for name in list_light_models():
        yield name, byoc_core.from_onnx(load_light_model(name))


def digest_artifact(executable: Executable, path: Path) -> Digests:
    """Save an executable and return a digest of each member, and of each field of manifest and report."""
    executable.save(path)
    found = {f"report/{name}": _digest(json.dumps(value).encode()) for name, value in executable.report_data.items()}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            data = archive.read(member)
            if member == _MANIFEST:
                fields = {name: value for name, value in json.loads(data).items() if name != "report"}
                found |= {f"{member}/{name}": _digest(json.dumps(value).encode()) for name, value in fields.items()}
            else:
                found[member] = _digest(data)
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def digest_zoo(only: str) -> dict[str, Digests]:
    """Return the digests of the artifacts of all networks with ``only`` in the name."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.byoc")
        for name, module in list_networks():
            for backends in BACKENDS if only in name else ():
                title = f"{name} on {'+'.join(backends) or 'host'}"
                found[title] = digest_artifact(byoc_core.build(module, backends=list(backends)), path)
                print(title, file=sys.stderr)
    return found


def list_differences(before: dict[str, Digests], after: dict[str, Digests]) -> list[str]:
    """Return a line for each member differing or on one side only; artifacts on one side only do not count."""
    lines = []
    for artifact in before.keys() & after.keys():
        old, new = before[artifact], after[artifact]
        lines += [f"{artifact}: {name}" for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    return sorted(lines)


def main() -> None:
    """Print the digests, or compare them with a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="networks with this text in the name")
    parser.add_argument("--compare", type=Path, help="a file of digests printed by this program")
    arguments = parser.parse_args()
    found = digest_zoo(arguments.only)
    if arguments.compare is None:
        print(json.dumps(found, indent=1))
        return
    lines = list_differences(json.loads(arguments.compare.read_text("utf-8")), found)
    print("\n".join(lines) or f"{len(found)} artifacts, none differs")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
