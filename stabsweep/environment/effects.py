"""What a difference between two environments does to numbers, in a word each."""

from __future__ import annotations

from collections.abc import Mapping

DRIVER = "it compiles some kernels: the last digits, seldom"
"""Of another driver of the GPU."""

VERSION = "other kernels: the last digits, now and then an algorithm"
"""Of another version of something that computes."""

KERNELS = "other vector instructions: the order of summation, the last digits"
"""Of other vector instructions."""

THREADS = "the order of summation: the 7th digit of a float32 sum"
"""Of another number of threads: measured by us, a sum of 200,000 uniform numbers moves by 8e-8."""

GPU = "other kernels and another order of summation: the last digits"

PLACES: Mapping[str, tuple[str, str]] = {
    "torch commit": ("torch.commit", "another source of the same version: look at what it changed"),
    "torch BLAS": ("torch.blas", "other matrix products: the order of summation, the last digits"),
    "numpy": ("numpy.version", VERSION),
    "numpy BLAS": ("numpy.blas", "other matrix products in NumPy: the last digits"),
    "vector level": ("torch.cpu_capability", KERNELS),
    "CPU vectors": ("cpu.vector", KERNELS),
    "CPU": ("cpu.model", "BLAS and oneDNN choose their kernels by it: the last digits"),
    "machine": ("platform.machine", "another instruction set: fused products round once"),
    "C library": ("platform.libc", "exp, log and sin of the CPU: the last digit"),
    "threads": ("threads.torch", THREADS),
    "cuDNN": ("torch.cudnn", "other convolutions and LSTMs: the last digits"),
    "GPU": ("gpu.names", GPU),
    "GPU usable": ("gpu.cuda_available", f"{GPU}, and other random numbers by design"),
}
"""What is compared as it stands -> where, and what a difference does to numbers."""

QUIET_PLACES = (
    "python.version",
    "python.implementation",
    "platform.system",
    "platform.release",
    "cpu.num_logical",
    "cpu.num_usable",
    "threads.interop",
    "gpu.num_cuda",
)
"""What is compared and computes nothing."""

REPEATS = "which algorithms are used, and whether a run repeats itself"
"""Of a switch that is not among `SWITCHES`."""

SWITCHES = {
    "default_dtype": "another number of digits altogether",
    "float32_matmul_precision": "TF32 or bfloat16 products on a GPU: about 2e-4 or 1e-2 relative",
    "matmul_tf32": "TF32 products on a GPU: about 2e-4 relative",
    "matmul_fp32_precision": "TF32 products on a GPU: about 2e-4 relative",
    "cudnn_tf32": "TF32 convolutions on a GPU: about 2e-4 relative",
    "cudnn_fp32_precision": "TF32 convolutions on a GPU: about 2e-4 relative",
    "matmul_fp16_reduction": "sums of float16 products in float16: about 1e-3 relative",
    "matmul_bf16_reduction": "sums of bfloat16 products in bfloat16: about 1e-2 relative",
    "cudnn_benchmark": "the algorithm is chosen by a race: the last digits, from run to run",
}
"""Switch of torch -> what it does to numbers."""

TORCH = {
    "torch": VERSION,
    "torch build": "another variant (cpu, CUDA): other kernels, other libraries",
}
"""What torch itself may be another of."""
