"""A snapshot on one page."""

from __future__ import annotations

from collections import Counter

from stabsweep.environment.finding import shortened
from stabsweep.environment.lookup import Snapshot, look, look_driver, look_list, look_text


def as_text(snapshot: Snapshot) -> str:
    """The lines of a snapshot that a reader looks for; the whole is its JSON.

    >>> as_text({"python": {"version": "3.11.7"}}).splitlines()[0]
    'Python     3.11.7'
    """
    system = (f"platform.{name}" for name in ("system", "release", "machine", "libc"))
    locks = ", ".join(str(entry.get("file")) for entry in look_list(snapshot, "lock"))
    lines = [
        ("Python", _joined(snapshot, "python.version", "python.executable")),
        ("System", _joined(snapshot, *system)),
        ("CPU", _joined(snapshot, "cpu.model", "cpu.vector") + _cores(snapshot)),
        ("Threads", _threads(snapshot)),
        ("torch", _library(snapshot, "torch")),
        ("numpy", _library(snapshot, "numpy")),
        ("OpenMP", _runtimes(snapshot, "openmp")),
        ("BLAS", _runtimes(snapshot, "blas")),
        ("GPU", _gpu(snapshot)),
        ("TF32", _tf32(snapshot)),
        ("Repeats", _repeats(snapshot)),
        ("Variables", _variables(snapshot)),
        ("Packages", _packages(snapshot)),
        ("Lock", locks or "none"),
        ("Git", _git(snapshot)),
    ]  # fmt: skip
    return "\n".join(f"{word:10} {text}" for word, text in lines)


def _joined(snapshot: Snapshot, *places: str) -> str:
    return ", ".join(text for place in places if (text := look_text(snapshot, place)))


def _cores(snapshot: Snapshot) -> str:
    usable, logical = look(snapshot, "cpu.num_usable"), look(snapshot, "cpu.num_logical")
    return f", {usable} of {logical} cores" if logical else ""


def _threads(snapshot: Snapshot) -> str:
    if reason := look_text(snapshot, "threads.error"):
        return f"not told: {shortened(reason)}"
    return f"{look(snapshot, 'threads.torch')}, {look(snapshot, 'threads.interop')} interop"


def _library(snapshot: Snapshot, name: str) -> str:
    if reason := look_text(snapshot, f"{name}.error"):
        return f"does not load: {shortened(reason)}"
    cuda, hip = look_text(snapshot, f"{name}.cuda"), look_text(snapshot, f"{name}.hip")
    build = f"CUDA {cuda}" if cuda else f"ROCm {hip}" if hip else "CPU build"
    here = [e for e in look_list(snapshot, "distributions") if e.get("name") == name]
    parts = [
        look_text(snapshot, f"{name}.version"),
        *([build] if name == "torch" else []),
        look_text(snapshot, f"{name}.blas"),
        look_text(snapshot, f"{name}.cpu_capability"),
        *(f"by {entry.get('installer')}" for entry in here),
    ]
    return ", ".join(filter(None, parts))


def _runtimes(snapshot: Snapshot, api: str) -> str:
    if reason := look_text(snapshot, "runtimes.error"):
        return reason
    found = [
        " ".join(str(e[key]) for key in ("kind", "version", "architecture") if e.get(key))
        + f" of {e.get('owner')}, {e.get('threads')} threads"
        for e in look_list(snapshot, "runtimes")
        if e.get("api") == api
    ]
    return "; ".join(found) or "none loaded"


def _gpu(snapshot: Snapshot) -> str:
    names, driver = look(snapshot, "gpu.names"), look_driver(snapshot)
    cudnn = look(snapshot, "torch.cudnn")
    parts = [*(names or []), driver and f"driver {driver}", cudnn and f"cuDNN {cudnn}"]
    if look(snapshot, "gpu.mps_available") is True:
        parts.append("Apple's (MPS)")
    return ", ".join(filter(None, parts)) or "none"


def _tf32(snapshot: Snapshot) -> str:
    told = {True: "on", False: "off"}
    return (
        ", ".join(
            f"{name} {told.get(look(snapshot, place), 'unknown')}"
            for name, place in (
                ("matmul", "switches.matmul_tf32"),
                ("cuDNN", "switches.cudnn_tf32"),
            )
        )
        + f", float32 matmul precision {look(snapshot, 'switches.float32_matmul_precision')}"
    )


def _repeats(snapshot: Snapshot) -> str:
    told = {True: "on", False: "off"}
    on = [
        f"{name} {told.get(look(snapshot, f'switches.{name}'), 'unknown')}"
        for name in ("deterministic", "cudnn_deterministic", "cudnn_benchmark")
    ]
    workspace = look(snapshot, "variables.CUBLAS_WORKSPACE_CONFIG")
    return ", ".join([*on, f"CUBLAS_WORKSPACE_CONFIG {workspace or 'not set'}"])


def _variables(snapshot: Snapshot) -> str:
    told = look(snapshot, "variables")
    return " ".join(f"{name}={value}" for name, value in (told or {}).items()) or "none set"


def _packages(snapshot: Snapshot) -> str:
    counts = Counter(
        str(entry.get("installer") or "unknown") for entry in look_list(snapshot, "distributions")
    )
    told = ", ".join(f"{number} by {name}" for name, number in counts.most_common())
    records = look_list(snapshot, "conda")
    return f"{told or 'not told'}; " + (f"{len(records)} conda packages" if records else "no conda")


def _git(snapshot: Snapshot) -> str:
    commit = look_text(snapshot, "git.commit")[:12]
    if not commit:
        return look_text(snapshot, "git.error") or "no project here"
    return commit + (", changed since" if look(snapshot, "git.dirty") else ", clean")
