"""The processor of this process, as Linux describes it; elsewhere its cores are known and nothing is assumed."""

import os
import platform
import re
from pathlib import Path


def _description():
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _name(description):
    if found := re.search(r"^model name\s*: (.*)", description, re.MULTILINE):  # ARM has none
        return found[1].strip()
    return platform.processor() or platform.machine()


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # that may be used
_DESCRIPTION = _description()
PROCESSOR = _name(_DESCRIPTION)
AVX512 = "avx512f" in _DESCRIPTION.split()  # registers of 512 bits
AVX2_ALONE = "avx2" in _DESCRIPTION.split() and not AVX512  # of 256 bits at most
