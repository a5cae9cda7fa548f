"""What the processor is, where that decides how to multiply."""

import os
from pathlib import Path


def _has_avx512():
    """As Linux says it; False where that is not known."""
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return False


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
AVX512 = _has_avx512()  # registers of 512 bits
