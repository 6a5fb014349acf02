"""The environment variables that change what is computed, each with what it does."""

from __future__ import annotations

import os
from collections.abc import Mapping

_THREADS = "number of threads: the order of summation, and the 7th digit of a float32 sum"
_KERNELS = "which vector instructions are used: the order of summation, the last digits"
_TF32 = "TF32 on or off: about 2e-4 relative"
_REDUCED = "float32 products computed in a smaller type: up to 1e-2 relative"
_OPENMP = "which OpenMP runtime or schedule is used: the order of summation"
_ALGORITHMS = "which GPU algorithms are used: the last digits, and whether a run repeats itself"
_COMPILED = "what torch.compile makes: fused kernels round in other places"

VARIABLES: Mapping[str, str] = {
    "ATEN_CPU_CAPABILITY": _KERNELS,
    "BLIS_NUM_THREADS": _THREADS,
    "CUBLASLT_WORKSPACE_SIZE": _ALGORITHMS,
    "CUBLAS_WORKSPACE_CONFIG": _ALGORITHMS,
    "CUDA_LAUNCH_BLOCKING": "kernels one after the other: no digit of its own, but races go away",
    "CUDA_VISIBLE_DEVICES": "which GPU is used, and whether any is",
    "DNNL_DEFAULT_FPMATH_MODE": _REDUCED,
    "DNNL_MAX_CPU_ISA": _KERNELS,
    "GLIBC_TUNABLES": "which variant of exp, log and sin the C library takes: the last digit",
    "GOTO_NUM_THREADS": _THREADS,
    "HSA_OVERRIDE_GFX_VERSION": "which kernels an AMD GPU runs: the last digits",
    "KMP_AFFINITY": _OPENMP,
    "KMP_DETERMINISTIC_REDUCTION": _OPENMP,
    "KMP_DUPLICATE_LIB_OK": "hides two OpenMP runtimes, which may compute wrong numbers in silence",
    "MKL_CBWR": "MKL's reproducible mode: the order of summation",
    "MKL_DEBUG_CPU_TYPE": _KERNELS,
    "MKL_DOMAIN_NUM_THREADS": _THREADS,
    "MKL_DYNAMIC": _THREADS,
    "MKL_ENABLE_INSTRUCTIONS": _KERNELS,
    "MKL_INTERFACE_LAYER": _OPENMP,
    "MKL_NUM_THREADS": _THREADS,
    "MKL_SERVICE_FORCE_INTEL": _OPENMP,
    "MKL_THREADING_LAYER": _OPENMP,
    "NCCL_ALGO": "the order in which GPUs are summed over",
    "NCCL_PROTO": "the order in which GPUs are summed over",
    "NPY_DISABLE_CPU_FEATURES": _KERNELS,
    "NPY_ENABLE_CPU_FEATURES": _KERNELS,
    "NUMEXPR_NUM_THREADS": _THREADS,
    "NVIDIA_TF32_OVERRIDE": _TF32,
    "OMP_DYNAMIC": _THREADS,
    "OMP_NUM_THREADS": _THREADS,
    "OMP_PROC_BIND": _OPENMP,
    "OMP_SCHEDULE": _OPENMP,
    "OMP_THREAD_LIMIT": _THREADS,
    "ONEDNN_DEFAULT_FPMATH_MODE": _REDUCED,
    "ONEDNN_MAX_CPU_ISA": _KERNELS,
    "OPENBLAS_CORETYPE": _KERNELS,
    "OPENBLAS_DEFAULT_NUM_THREADS": _THREADS,
    "OPENBLAS_NUM_THREADS": _THREADS,
    "PYTHONHASHSEED": "the order of sets of names, where a program depends on it",
    "PYTORCH_ENABLE_MPS_FALLBACK": "what Apple's GPU lacks is computed on the CPU: the last digits",
    "PYTORCH_MPS_FAST_MATH": "faster and looser functions on Apple's GPU: the last digits",
    "TORCHDYNAMO_DISABLE": _COMPILED,
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS": _COMPILED,
    "TORCHINDUCTOR_MAX_AUTOTUNE": _COMPILED,
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": _TF32,
    "TORCH_BLAS_PREFER_CUBLASLT": _ALGORITHMS,
    "TORCH_COMPILE_DISABLE": _COMPILED,
    "TORCH_CUDNN_V8_API_DISABLED": _ALGORITHMS,
    "TORCH_LINALG_PREFER_CUSOLVER": _ALGORITHMS,
    "TORCH_ROCM_FA_PREFER_CK": _ALGORITHMS,
    "VECLIB_MAXIMUM_THREADS": _THREADS,
}
"""Variable -> what it does to numbers.

A fixed list, chosen by us from what torch, NumPy, MKL, oneDNN, OpenBLAS, cuBLAS and the OpenMP
runtimes read; the whole environment would hold secrets, and names of paths.
"""


SET_BY_LIBRARIES = {"KMP_DUPLICATE_LIB_OK": "True"}
"""What scikit-learn sets by itself when it is imported: not the user's doing, and not told."""


def read() -> dict[str, str]:
    """Those of `VARIABLES` that are set, and no other."""
    return {
        name: os.environ[name]
        for name in VARIABLES
        if name in os.environ and os.environ[name] != SET_BY_LIBRARIES.get(name)
    }
