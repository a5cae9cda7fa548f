import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.processor import AVX2_ALONE, AVX512, PROCESSOR
from tests.processes import environment


def test_numpy_sees_the_same_processor():
    found = set(np.show_config(mode="dicts")["SIMD Extensions"]["found"])
    assert bool(found & {"AVX512F", "X86_V4"}) == AVX512  # older releases have the first, newer ones a group of several
    assert (bool(found & {"AVX2", "X86_V3"}) and not AVX512) == AVX2_ALONE


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="Linux alone has /proc/cpuinfo")
def test_the_processor_is_named_as_linux_names_it():
    assert PROCESSOR and "\n" not in PROCESSOR
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    assert not models or {PROCESSOR} == models  # ARM has none there


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no cores to choose")
def test_the_cores_are_those_that_may_be_used():
    one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})"
    program = f"{one}; from keras_transformer import processor; assert processor.CORES == 1"
    subprocess.run([sys.executable, "-c", program], check=True, env=environment(Path(__file__).parents[1]))
