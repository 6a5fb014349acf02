"""What a check finds of the GPU: builds without it, old drivers, TF32, half-way determinism."""

from __future__ import annotations

from collections.abc import Mapping

from stabsweep.environment import conda
from stabsweep.environment.finding import Finding
from stabsweep.environment.lookup import Snapshot, look, look_driver, look_list, look_text

MIN_DRIVERS: Mapping[str, str] = {
    "10.0": "410.48",
    "10.1": "418.39",
    "10.2": "440.33",
    "11": "450.80.02",
    "12": "525",
    "13": "580",
}
"""CUDA version, or all of one major version, -> the oldest Linux driver that runs it.

References:
    NVIDIA, CUDA Compatibility, "Minor Version Compatibility", tables of toolkit 10.x and of 11.x to
    13.x. A driver between the major version's first and the minor version's own runs it with a
    limited set of features; that is not told apart here. The package `cuda-compat` lets an older
    one run it on some cards: where torch can use the GPU nothing is said.
"""

WORKSPACES = (":4096:8", ":16:8")
"""What CUBLAS_WORKSPACE_CONFIG must be for cuBLAS to repeat itself (torch's documentation of
`use_deterministic_algorithms`)."""


def find(snapshot: Snapshot) -> list[Finding]:
    """What keeps a GPU from being used, and what it computes otherwise than a CPU does."""
    cpu_build = _find_cpu_build(snapshot)
    return [
        *cpu_build,
        *(() if cpu_build else _find_unusable(snapshot)),
        *_find_tf32(snapshot),
        *_find_half_way(snapshot),
    ]


def _find_cpu_build(snapshot: Snapshot) -> list[Finding]:
    gpus = look(snapshot, "gpu.names")
    version = look_text(snapshot, "torch.version")
    if not gpus or not version or look(snapshot, "torch.cuda") or look(snapshot, "torch.hip"):
        return []
    for record in look_list(snapshot, "conda"):
        if conda.distribution_of(record) == "torch":
            return [
                Finding(
                    "error", "torch",
                    f"conda took a CPU build ({record.get('version')} {record.get('build')}) "
                    f"beside a GPU ({gpus[0]}), which its solver does without a word",
                    "`conda install 'pytorch=*=*cuda*'`, or the package pytorch-gpu of conda-forge",
                )
            ]  # fmt: skip
    return [
        Finding(
            "warning", "torch", f"{version} is a CPU build beside a GPU ({gpus[0]})",
            "if the GPU is to train: install a CUDA build, as torch's page of installation says",
        )
    ]  # fmt: skip


def _find_unusable(snapshot: Snapshot) -> list[Finding]:
    if look(snapshot, "gpu.cuda_available") is True:
        return []  # an old driver too: NVIDIA's package for forward compatibility is there
    cuda, driver = look_text(snapshot, "torch.cuda"), look_driver(snapshot)
    least = MIN_DRIVERS.get(cuda) or MIN_DRIVERS.get(cuda.partition(".")[0])
    if driver and least and _numbers(driver) < _numbers(least):
        return [
            Finding(
                "error", "driver", f"{driver} is older than CUDA {cuda} needs ({least})",
                f"install driver {least} or newer, or a torch built for an older CUDA",
            )
        ]  # fmt: skip
    gpus = look(snapshot, "gpu.names")
    hidden = look(snapshot, "variables.CUDA_VISIBLE_DEVICES")
    if not gpus or not cuda or look(snapshot, "gpu.cuda_available") is not False:
        return []
    if hidden in ("", "-1"):
        return [
            Finding(
                "info", "GPU", f"hidden by CUDA_VISIBLE_DEVICES={hidden!r}", "unset it to use it"
            )
        ]
    return [
        Finding(
            "warning", "GPU", f"torch {look_text(snapshot, 'torch.version')} cannot use {gpus[0]}",
            "`python -c 'import torch; torch.zeros(1).cuda()'` says why",
        )
    ]  # fmt: skip


def _find_tf32(snapshot: Snapshot) -> list[Finding]:
    if look(snapshot, "gpu.cuda_available") is not True or not look(snapshot, "torch.cuda"):
        return []
    matmul, cudnn = (look(snapshot, f"switches.{name}_tf32") for name in ("matmul", "cudnn"))
    on = [name for name, is_on in (("matmul", matmul), ("cuDNN", cudnn)) if is_on is True]
    if not on:
        return []
    off = [name for name in ("matmul", "cuDNN") if name not in on]
    told = f"on for {' and '.join(on)}" + (f", off for {off[0]}" if off else "")
    return [
        Finding(
            "info", "TF32",
            f"{told}: on Ampere and newer, float32 products keep 10 bits there, a gap of about "
            "2e-4 relative to a CPU",
            "torch.set_float32_matmul_precision('highest') and "
            "torch.backends.cudnn.allow_tf32 = False close it",
        )
    ]  # fmt: skip


def _find_half_way(snapshot: Snapshot) -> list[Finding]:
    if look(snapshot, "switches.deterministic") is not True:
        return []
    findings = []
    workspace = look(snapshot, "variables.CUBLAS_WORKSPACE_CONFIG")
    has_cuda = look(snapshot, "gpu.cuda_available") is True and bool(look(snapshot, "torch.cuda"))
    if has_cuda and workspace not in WORKSPACES:
        given = "is not set" if workspace is None else f"is {workspace!r}"
        findings.append(
            Finding(
                "warning", "determinism",
                f"half way: deterministic algorithms are on, but CUBLAS_WORKSPACE_CONFIG {given}, "
                "so cuBLAS and LSTMs may differ from run to run, or raise",
                f"export CUBLAS_WORKSPACE_CONFIG={WORKSPACES[0]} before Python starts: once CUDA "
                "has started it has no effect",
            )
        )  # fmt: skip
    if has_cuda and look(snapshot, "switches.cudnn_benchmark") is True:
        findings.append(
            Finding(
                "warning", "determinism",
                "half way: cudnn.benchmark picks the fastest algorithm of the moment",
                "torch.backends.cudnn.benchmark = False",
            )
        )  # fmt: skip
    return findings


def _numbers(version: str) -> tuple[int, ...]:
    """A driver's version to compare by.

    >>> _numbers("450.80.02") < _numbers("525")
    True
    """
    return tuple(int(part) for part in version.split("."))
