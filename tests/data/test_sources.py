import gzip
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.config import DataConfig
from keras_transformer.data import sources
from keras_transformer.data.demo import demo_pairs
from keras_transformer.data.sources import DataError, read_pairs

EVERY_LINE_BREAK_BUT_ONE = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def read(*corpus, **options):
    return list(read_pairs(corpus if len(corpus) > 1 else corpus[0], **options))


class TestFiles:
    def test_line_meets_line(self, write):
        first, second = write("a.en", ["one", "two"]), write("a.de", ["eins", "zwei"])
        assert read(first, second) == [("one", "eins"), ("two", "zwei")]

    def test_reverse_swaps_the_sides_and_limit_stops_early(self, write):
        first, second = write("a.en", ["one", "two"]), write("a.de", ["eins", "zwei"])
        assert read(first, second, reverse=True, limit=1) == [("eins", "one")]

    def test_several_files_follow_one_another_and_gz_is_decompressed(self, write):
        first = (write("a.en", ["one"]), write("b.en.gz", gzip.compress(b"two\nthree\n")))
        second = (write("a.de.gz", gzip.compress(b"eins\n")), write("b.de", ["zwei", "drei"]))
        assert read(first, second) == [("one", "eins"), ("two", "zwei"), ("three", "drei")]

    def test_only_a_newline_ends_a_line(self, write):
        text = f"a{EVERY_LINE_BREAK_BUT_ONE}b"
        assert read(write("a.en", [text, "c"]), write("a.de", ["x", "y"])) == [(text, "x"), ("c", "y")]

    @pytest.mark.parametrize("content", [b"a\nb\n", b"a\nb", b"a\r\nb\r\n", b"a\r\nb", b"\xef\xbb\xbfa\nb\n"])
    def test_ends_of_lines_and_byte_order_marks_are_no_text(self, write, content):
        assert read(write("a.en", content), write("a.de", ["x", "y"])) == [("a", "x"), ("b", "y")]

    def test_empty_lines_blanks_and_nul_shift_nothing(self, write):
        first, second = write("a.en", b"\n a \n\0\n"), write("a.de", ["x", "", "z"])
        assert read(first, second) == [("", "x"), (" a ", ""), ("\0", "z")]

    @settings(max_examples=100, deadline=None)
    @given(lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=9), min_size=1))
    def test_any_text_comes_through(self, tmp_path_factory, lines):
        lines = ["first", *(line.removesuffix("\r") for line in lines)]
        path = tmp_path_factory.mktemp("any") / "a"
        path.write_bytes("\n".join(lines).encode() + b"\n")
        assert list(sources.read_lines(path)) == lines

    @pytest.mark.parametrize("numbers", [(3, 5), (5, 3)])
    def test_different_numbers_of_lines_are_refused_with_both_numbers(self, write, numbers):
        paths = [write(name, ["x"] * number) for name, number in zip("ab", numbers, strict=True)]
        with pytest.raises(DataError, match=rf"{numbers[0]} in .*a, {numbers[1]} in .*b\."):
            read(*paths)

    def test_files_are_counted_one_by_one(self, write):
        first, second = (
            (write("a.en", ["x"] * 3), write("b.en", ["x"])),
            (write("a.de", ["x"]), write("b.de", ["x"] * 3)),
        )
        with pytest.raises(DataError, match=r"3 in .*a\.en, 1 in .*a\.de"):
            read(first, second)

    def test_different_numbers_of_files_are_refused(self, write):
        with pytest.raises(DataError, match="equal numbers of files"):
            read((write("a", ["x"]), write("b", ["x"])), write("c", ["x", "x"]))

    def test_invalid_utf8_is_refused_with_file_and_line(self, write):
        with pytest.raises(DataError, match=r"a\.en, line 3: expected UTF-8\. Received: byte 0xff at column 4\.$"):
            read(write("a.en", b"a\nb\nabc\xff\n"), write("a.de", ["x"] * 3))

    def test_utf16_is_recognised(self, write):
        with pytest.raises(DataError, match="line 1.*looks like UTF-16"):
            read(write("a.en", "a\n".encode("utf-16")), write("a.de", ["x"]))

    def test_what_is_no_file_is_refused(self, write, tmp_path):
        good = write("a", ["x"])
        with pytest.raises(DataError, match=r"missing.*No such file"):
            read(good, str(tmp_path / "missing"))
        with pytest.raises(DataError, match="Is a directory"):
            read(good, str(tmp_path))
        with pytest.raises(DataError, match=r"empty: expected at least one line"):
            read(good, write("empty", b""))

    def test_a_damaged_gz_is_refused_and_not_cut_short(self, write):
        packed = gzip.compress(b"some line that is not repeated\n" + bytes(range(32, 127)) * 50)
        good = write("a", ["x"] * 9)
        with pytest.raises(DataError, match="damaged after line"):
            read(good, write("cut.gz", packed[:-20]))
        with pytest.raises(DataError, match="damaged after line 0"):
            read(good, write("plain.gz", b"plain text\n"))

    def test_files_are_read_line_by_line(self, write):
        first, second = write("a", b"x\n" * 100_000 + b"\xff\n"), write("b", b"y\n" * 100_001)
        pairs = read_pairs((first, second))
        assert next(pairs) == ("x", "y")  # the bad line was not reached


class TestTsv:
    def test_columns_after_the_second_are_ignored(self, write):
        path = write("a.tsv", ["one\teins\tCC BY 2.0", "two\tzwei"])
        assert read(path) == [("one", "eins"), ("two", "zwei")]
        assert read(path, reverse=True) == [("eins", "one"), ("zwei", "two")]

    @pytest.mark.parametrize("name", ["a.tsv.gz", "A.TSV.GZ"])
    def test_it_may_be_compressed(self, write, name):
        assert read(write(name, gzip.compress(b"one\teins\n"))) == [("one", "eins")]

    def test_its_name_may_be_in_capitals(self, write):
        assert read(write("A.TSV", ["one\teins"])) == [("one", "eins")]

    def test_a_line_of_one_column_is_refused_with_its_number(self, write):
        with pytest.raises(DataError, match=r"a\.tsv, line 2: expected two columns.*'two zwei'"):
            read(write("a.tsv", ["one\teins", "two zwei"]))

    def test_another_single_file_is_refused(self, write):
        with pytest.raises(DataError, match=r"pair of text files, one \.tsv file"):
            read(write("a.txt", ["one\teins"]))


class TestDemo:
    def test_the_splits_are_those_of_the_grammar(self):
        assert sources.splits("demo") == {"train", "valid", "test"}
        assert read("demo", split="valid", limit=7) == list(demo_pairs("valid", 7))
        assert sum(1 for _ in read_pairs("demo", "test")) == 1000

    def test_it_has_a_default_size_and_takes_another(self):
        assert sources.DEMO_PAIRS["train"] == 40_000
        assert sum(1 for _ in read_pairs("demo", "train", limit=50)) == 50

    def test_it_can_be_reversed(self):
        assert read("demo", limit=3, reverse=True) == [(german, english) for english, german in demo_pairs("train", 3)]


class TestParts:
    def test_files_are_listed_in_order(self):
        assert [path.name for path in sources.files((("a", "b"), ("c", "d")))] == ["a", "b", "c", "d"]
        assert [path.name for path in sources.files(("a", "c"))] == ["a", "c"]
        assert [path.name for path in sources.files("x.tsv")] == ["x.tsv"]
        assert sources.files("demo") == sources.files("tfds:a/b-c") == []

    @pytest.mark.parametrize(
        ("train", "test", "expected"),
        [("demo", None, "demo"), ("demo", "a.tsv", "a.tsv"), ("b.tsv", None, None), ("b.tsv", "a.tsv", "a.tsv")],
    )
    def test_the_test_set_that_is_named_comes_before_that_of_the_grammar(self, train, test, expected):
        found = sources.evaluation_corpus(DataConfig(train=train, test=test))
        assert (found and found.rpartition("/")[2]) == expected

    def test_files_have_no_splits(self):
        assert sources.splits("a.tsv") == sources.splits(("a", "b")) == set()


class TestTfds:
    def test_both_directions_of_a_real_set_through_the_mock(self, tfds):
        with tfds.testing.mock_data(num_examples=3):
            there, back = read("tfds:wmt14_translate/de-en"), read("tfds:wmt14_translate/en-de", split="valid")
        assert len(there) == 3
        assert there == [(german, english) for english, german in back]
        assert all(isinstance(text, str) for pair in there for text in pair)

    @pytest.mark.parametrize(
        "corpus, name",
        [
            ("tfds:wmt14_translate/en-fr", "wmt14_translate/fr-en"),
            ("tfds:ted_hrlr_translate/en-pt", "ted_hrlr_translate/pt_to_en"),
            ("tfds:para_crawl/de-en", "para_crawl/ende"),
            ("tfds:opus/medical/en-de", "opus/medical"),
        ],
    )
    def test_the_config_is_found_however_tfds_names_it(self, tfds, corpus, name):
        found = sources.tfds_translation(corpus)
        assert found.name == name
        assert f"{found.source}-{found.target}" == corpus.rpartition("/")[2]

    def test_a_prepared_set_is_read_the_same_way_each_time(self, tiny_set):
        train = read(f"{tiny_set}/de-en")
        assert sorted(train) == sorted((f"Satz {i} \u2028", f"sentence {i}") for i in range(23))
        assert read(f"{tiny_set}/de-en") == train
        assert read(f"{tiny_set}/en-de", limit=4) == [(english, german) for german, english in train[:4]]
        assert read(f"{tiny_set}/en-de", reverse=True) == train

    def test_its_splits_are_those_it_has(self, tiny_set):
        assert sources.splits(f"{tiny_set}/de-en") == {"train", "valid"}
        assert len(read(f"{tiny_set}/de-en", split="valid")) == 5
        with pytest.raises(DataError, match="cannot be read: Unknown split 'test'"):
            read(f"{tiny_set}/de-en", split="test")

    @pytest.mark.parametrize(
        "corpus, message",
        [
            ("tfds:no_such_set/de-en", "does not know .* not found"),
            ("tfds:wmt14_translate/de-xx", "none of its configs is for de and xx: cs-en, de-en"),
            ("tfds:opus/medical/de-fr", "must name two languages of opus/medical: de, en"),
            ("tfds:wmt14_translate", "must be 'tfds:NAME/SOURCE-TARGET'"),
            ("tfds:wmt14_translate/deen", "must be 'tfds:NAME/SOURCE-TARGET'"),
            ("tfds:a/b/c/de-en", "must be 'tfds:NAME/SOURCE-TARGET'"),
        ],
    )
    def test_what_tfds_does_not_have_is_refused(self, tfds, corpus, message):
        with pytest.raises(DataError, match=message):
            read(corpus)

    def test_a_missing_package_is_named_with_the_command_that_installs_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
        with pytest.raises(DataError, match=r'pip install -e "\.\[tfds\]"'):
            read("tfds:wmt14_translate/de-en")
