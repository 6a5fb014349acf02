#!/bin/sh
# What a GPU is worth, in one table and at most eight minutes: sh benchmarks/gpu.sh
# Without one, small: sh benchmarks/gpu.sh --device cpu --small
cd "$(dirname "$0")/.." || exit 2
exec "${PYTHON:-python}" benchmarks/_gpu_rows.py "$@"
