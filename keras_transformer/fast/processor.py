"""What the processor is, where that decides how to multiply."""

import os
from pathlib import Path


def _flags():
    """What the processor can do, as Linux says it; empty where that is not known."""
    try:
        return set(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return set()


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
AVX512 = "avx512f" in _flags()  # registers of 512 bits
AVX2_ALONE = "avx2" in _flags() and not AVX512  # of 256 bits at most
