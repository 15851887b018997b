"""This machine, as far as known without a measurement."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from byoc_core.native.cpu import machine_features

__all__ = ["machine_facts", "processor_text"]


def machine_facts() -> dict[str, str]:
    """Return the facts of this machine with an influence on times."""
    features = ",".join(sorted(machine_features() or ()))
    return {
        "machine": platform.machine(),
        "processor": _processor_name(),
        "cpus": str(os.cpu_count() or 0),
        "features": hashlib.sha256(features.encode()).hexdigest()[:16],
    }


def processor_text() -> str:
    """Return the facts of this machine as a line of text, equal on machines of one kind."""
    facts = machine_facts()
    return f"{facts['processor']}, {facts['machine']}, {facts['cpus']} cpus, features {facts['features']}"


def _processor_name() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
