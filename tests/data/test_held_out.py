import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.data.digests import text_digest
from keras_transformer.data.held_out import NOTHING, choose_held_out


def pairs_of(sources):
    return [(source, f"translation {i}") for i, source in enumerate(sources)]


def taken(pairs, most):
    held_out = choose_held_out((source for source, _ in pairs), most)
    return [pair for pair in pairs if held_out.takes(pair[0])]


@pytest.mark.parametrize("number, most, expected", [(1000, 7, 7), (1000, 400, 50), (19, 5, 1), (2, 5, 1), (41, 9, 2)])
def test_it_takes_as_many_as_asked_but_no_more_than_one_in_twenty(number, most, expected):
    assert len(taken(pairs_of(map(str, range(number))), most)) == expected


@given(sources=st.lists(st.sampled_from("abcdefgh"), max_size=200), most=st.integers(1, 30))
def test_all_pairs_of_one_source_fall_on_one_side_and_never_too_many(sources, most):
    pairs = pairs_of(sources)
    chosen = taken(pairs, most)
    chosen_sources = {source for source, _ in chosen}
    assert len(chosen) <= min(most, max(1, len(pairs) // 20)) or len(chosen_sources) == 1
    assert chosen if len(set(sources)) > 1 else not chosen
    assert chosen_sources.isdisjoint(source for source, _ in pairs if (source, _) not in chosen)


@pytest.mark.parametrize("source", [str(i) for i in range(30)])
def test_a_source_of_many_translations_is_in_nobodys_way(source):
    pairs = [(source, f"x{i}") for i in range(500)] + pairs_of(map(str, range(30)))
    chosen = taken(pairs, 4)
    assert 1 <= len(chosen) <= 4 and source not in dict(chosen)


def test_the_order_of_the_lines_does_not_matter():
    pairs = pairs_of(map(str, range(500)))
    assert taken(pairs, 9) == sorted(taken(pairs[::-1], 9), key=pairs.index)


def test_it_is_spread_over_the_corpus():
    places = [int(source) for source, _ in taken(pairs_of(map(str, range(10_000))), 500)]
    assert len([place for place in places if place < 5000]) == pytest.approx(250, abs=60)


def test_where_no_choice_is_possible_none_is_made():
    assert choose_held_out([], 5) == NOTHING
    assert taken(pairs_of(["same"] * 100), 5) == []
    assert taken(pairs_of(["one"]), 5) == []


@pytest.mark.parametrize("frequent", ["word 48.", "word 20.", "Right."])
def test_a_frequent_source_does_not_make_the_set_small(frequent):
    pairs = pairs_of([f"sentence {i}" for i in range(18_900)] + [frequent] * 1100)  # too many pairs for the set
    chosen = taken(pairs, 1000)
    assert len(chosen) == 1000 and frequent not in dict(chosen)


def test_a_set_is_not_filled_with_one_source():
    frequent = sorted((f"word {i}." for i in range(400)), key=text_digest)[:5]  # among the first that are looked at
    pairs = pairs_of([f"sentence {i}" for i in range(17_000)] + frequent * 600)  # each would fit
    chosen = taken(pairs, 1000)
    assert len(chosen) > 990 and dict(chosen).keys().isdisjoint(frequent)
    few = pairs_of(["a", "b"] * 600)  # here there are no others
    assert len(taken(few, 1000)) == 600


def test_pairs_that_still_fit_are_taken_after_one_that_does_not():
    assert len(taken(pairs_of([str(i) for i in range(380)] + ["w261"] * 30), 1000)) == 20
