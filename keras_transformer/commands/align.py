"""keras-transformer align: which words of given translations come from which words of their sources."""

from keras_transformer.commands.pairs import add_pairs, answer_pairs

EPILOG = """\
Pairs come from two files, or from one with a pair per line, SOURCE TAB TARGET (default: standard input). A line of
output has the links of a pair as Pharaoh and other tools write them: 0-0 1-2 2-1, the numbers of a source word and of
a target word, words being what blanks divide in the text as the tokenizer normalises it. They are made of the model's
attention, which is an approximation. If a side is blank, the line is empty. A program that waits for each answer needs
--buffer-lines 1."""


def add_arguments(parser):
    parser.epilog = EPILOG
    add_pairs(parser, "links", "aligned")


def run(options) -> int:
    return answer_pairs(options, lambda translator, *sides: map(_as_text, translator.word_alignments(*sides)))


def _as_text(links):
    return " ".join(f"{source}-{target}" for source, target in links)
