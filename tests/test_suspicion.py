"""Outputs that look wrong whatever their score."""

import pytest

from keras_transformer.suspicion import suspicion


@pytest.mark.parametrize(
    "source, hypothesis, reference, reason",
    [
        ("the cat sleeps", "die Katze schläft", "die Katze schläft", ""),
        ("the cat sleeps", "", "die Katze schläft", "empty"),
        ("the cat sleeps", "   ", "die Katze schläft", "empty"),
        ("the cat sleeps well", "the cat sleeps well", "die Katze schläft gut", "copied"),
        ("Barack Obama", "Barack Obama", "Barack Obama", ""),  # the reference is a copy too
        ("the cat sleeps", "die die die die die Katze", "die Katze schläft", "repeated"),
        ("hihihihihihihihi gut", "hihihihihihihihi good", "very good", "repeated"),
        ("eine Milliarde Euro", "1,000,000,000 euros", "one billion euros", ""),
        ("Kapitel 1 ............... 5", "Chapter 1 ............... 5", "Chapter 1 … 5", ""),
        ("a to f", "Nr. 1, Nr. 2, Nr. 3, Nr. 4, Nr. 5, Nr. 6", "a bis f", ""),
        ("a form", "नमनामनामनामनामनाम", "नाम", "repeated"),
        ("a form", "Name: ------------------", "Name: ___", ""),
        ("his data", "seine Daten-Daten-Daten-Daten", "seine Daten", "repeated"),
        ("no no no no", "nein nein nein nein", "nein nein nein nein", ""),  # the reference repeats too
    ],
)
def test_what_is_suspicious_has_a_reason(source, hypothesis, reference, reason):
    assert suspicion(source, hypothesis, reference) == reason
