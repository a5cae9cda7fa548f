import subprocess
import sys

import pytest

from export import check

TEXTS = ["the dog sees the cat .", "", "\x00"]


def test_the_answers_are_one_a_sentence_and_those_of_the_translator(exported, translator):
    answers = check.answers(str(exported), TEXTS)
    expected = [best for best, *_ in translator.translate_nbest(TEXTS, num_hypotheses=1)]
    assert answers["serving_default"]["translation"] == [best.text for best in expected]
    assert answers["serving_default"]["score"] == pytest.approx([best.score for best in expected], abs=1e-4)
    assert [found[0] for found in answers["translate_nbest"]["translations"]] == [best.text for best in expected]
    assert len(answers["score"]["log_prob"]) == len(TEXTS)


def test_it_knows_nothing_of_this_project():
    program = f"import runpy, sys; runpy.run_path({check.__file__!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if name.partition(".")[0] in ("keras_transformer", "export")]
