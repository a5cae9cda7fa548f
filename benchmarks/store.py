"""The store of tokenised pairs: built, opened, read; what it takes on disk and in memory.

python benchmarks/store.py                                           # 100,000 pairs of the built-in grammar
python benchmarks/store.py --source a.en --target a.de --vocab-size 10000 --repeats 3

    tokenizer         seconds of training it, which are no part of what follows
    build             pairs a second: read, cleaned, tokenised, written, flushed to the disk
    on disk           bytes a pair
    open              milliseconds
    plan              milliseconds until it is known which pairs make which batch
    batch 1,000,000   milliseconds, coming from another epoch: the order of its epoch is made first
    batch nearby      milliseconds of another batch of the same epoch
    peak memory       MiB of the process, the import of TensorFlow and the training of the tokenizer included
"""

import os
import tempfile
import time
from itertools import chain
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure

from keras_transformer.config import DataConfig
from keras_transformer.data.batches import BatchPlan
from keras_transformer.data.cleaning import Cleaning
from keras_transformer.data.corpus import Corpus, build_corpus
from keras_transformer.data.demo import demo_pairs
from keras_transformer.data.prepare import draw
from keras_transformer.data.sources import read_pairs
from keras_transformer.tokenizer import Tokenizer, Tokenizers

FAR = 1_000_000  # the number of a batch
CALLS = 100  # of a repeat, where one takes less than a millisecond


def main():
    parser = measure.command_line(__doc__)
    parser.add_argument("--pairs", type=measure.positive, default=100_000, help="of the built-in grammar (%(default)s)")
    parser.add_argument("--source", help="a file of sentences, instead of the built-in grammar")
    parser.add_argument("--target", help="the file of their translations")
    parser.add_argument(
        "--vocab-size", type=measure.positive, default=DataConfig.vocab_size, help="at most (%(default)s)"
    )
    parser.add_argument("--tokens-per-batch", type=measure.positive, default=8192, help="(%(default)s)")
    options = parser.parse_args()
    if bool(options.source) != bool(options.target):
        parser.error("--source and --target belong together")
    for path in filter(None, (options.source, options.target)):
        if not Path(path).is_file():
            parser.error(f"--source and --target must be files. Received: {path}.")
    imported = measure.peak_memory()
    with tempfile.TemporaryDirectory() as folder:
        text = (options.source, options.target) if options.source else write(Path(folder), options.pairs)
        data = DataConfig(train=text, vocab_size=options.vocab_size)
        for work, unit, values, about in figures(data, Path(folder, "store"), options):
            measure.report({"work": work, "unit": unit, **measure.spread(values), **about})
    memory = measure.spread([measure.peak_memory()])
    measure.report({"work": "peak memory", "unit": "MiB", **memory, "imported_mib": imported})


def write(folder, number):
    """The built-in grammar as two files of text; their names."""
    paths = folder / "a.en", folder / "a.de"
    with paths[0].open("w", encoding="utf-8") as english, paths[1].open("w", encoding="utf-8") as german:
        for pair in demo_pairs("train", number):
            print(pair[0], file=english)
            print(pair[1], file=german)
    return tuple(map(str, paths))


def figures(data, folder, options):
    """What is measured, its unit, a value for every repeat, and what else there is to know about it."""
    repeats = range(options.repeats)
    sample, num_pairs = draw(read_pairs(data.train), data.tokenizer_pairs)
    began = time.perf_counter()
    tokenizer = Tokenizer.train(chain.from_iterable(sample), vocab_size=data.vocab_size)
    seconds = time.perf_counter() - began
    yield "tokenizer", "s", [seconds], {"pairs": len(sample), "vocab_size": tokenizer.vocab_size}
    del sample  # so that its memory is not that of the build

    rates = [num_pairs / measure.timed(lambda: build(data, folder, tokenizer)) for _ in repeats]
    corpus = Corpus(folder)
    yield "build", "pairs/s", rates, {"pairs": len(corpus)}
    yield "on disk", "bytes a pair", [sum(corpus.meta["files"].values()) / len(corpus)], {}
    yield "open", "ms", [milliseconds(lambda: Corpus(folder), CALLS) for _ in repeats], {}

    def make_plan():
        return BatchPlan(corpus, tokens_per_batch=options.tokens_per_batch)

    plan = make_plan()
    per_epoch = plan.batches_per_epoch
    yield "plan", "ms", [milliseconds(make_plan) for _ in repeats], {"batches_per_epoch": per_epoch}

    def from_another_epoch():
        plan.batch(0)
        return milliseconds(lambda: plan.batch(FAR))

    yield f"batch {FAR:,}", "ms", [from_another_epoch() for _ in repeats], {}
    nearby = range(FAR - FAR % per_epoch, FAR - FAR % per_epoch + per_epoch)[:CALLS]
    yield "batch nearby", "ms", [milliseconds(lambda: [*map(plan.batch, nearby)]) / len(nearby) for _ in repeats], {}


def build(data, folder, tokenizer):
    cleaning = Cleaning(data)
    pairs = cleaning.clean(read_pairs(data.train))
    build_corpus(folder, pairs, Tokenizers(tokenizer, tokenizer), cleaning, key="benchmark")


def milliseconds(function, calls=1):
    """Of one call, the mean of so many."""
    return 1000 * measure.timed(lambda: [function() for _ in range(calls)]) / calls


if __name__ == "__main__":
    main()
