"""Measures the beam search, ids in and ids out: sentences a second, and the time of a call, of the first, and to build.

python benchmarks/decoding.py                                        # D1 D2 D3a D3b G1, compiled by XLA
python benchmarks/decoding.py --work D1 --how graph
python benchmarks/decoding.py --work D1 D2 --how saved_model         # the served signature translate_ids
python benchmarks/decoding.py --peer "CTranslate2=ct2/bin/python benchmarks/peers/ctranslate2_search.py {work}"
"""

import os
import tempfile
from functools import partial

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from export.module import ServingTranslator
from keras_transformer import Transformer
from keras_transformer.config import DecodeConfig
from keras_transformer.tokenizer import Tokenizer, Tokenizers
from keras_transformer.translator import Translator

# Afterwards TensorFlow, which keras_transformer lets use oneDNN.
# isort: split
import measure
import numpy as np
import tensorflow as tf
import works


def translator(work, xla, **changes):
    """A translator with random weights that writes exactly `num_steps` pieces. Its tokenizer is not used.

    `changes` are other sizes of the model.
    """
    extra = work.num_steps - work.source_length
    decode = DecodeConfig(beam_width=work.beam_width, extra_length=max(1, extra), min_length=work.num_steps + 1)
    if extra < 1:  # a translation no longer than its source is one that is cut off
        decode = decode.replace(max_input_length=work.num_steps - 1)
    model = Transformer(**{**works.MODELS[work.model], **changes})
    # Of as many pieces, because a search makes no others: four special ones, a letter, "▁" and symbols.
    symbols = [f"<{number}>" for number in range(model.vocab_size - 6)]
    tokenizer = Tokenizer.train(["a"], vocab_size=model.vocab_size, symbols=symbols)
    return Translator(model, Tokenizers(tokenizer, tokenizer), decode, xla=xla)


def xla(work, **changes):
    """(B, S) -> (B, T) by the compiled search, padding to its shapes included."""
    search = translator(work, True, **changes).searching()
    return lambda ids: search(ids).ids[:, 0]


def graph(work):
    search = translator(work, False).searching()
    return lambda ids: search(ids).ids[:, 0]


def saved_model(work):
    """By the signature of an exported model, loaded back."""
    served = ServingTranslator(translator(work, False))
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(served, folder, signatures={"translate_ids": served.signatures()["translate_ids"]})
        loaded = tf.saved_model.load(folder)

    def call(ids):
        return loaded.signatures["translate_ids"](ids=tf.constant(ids))["ids"].numpy()

    return call


PERCENTILES = {"median": 50, "p90": 90}  # of the time of a call
HOWS = {"xla": xla, "graph": graph, "saved_model": saved_model}


def main():
    parser = measure.command_line(__doc__)
    measure.add_works(parser, works.names(works.Decoding))
    parser.add_argument("--how", choices=HOWS, default="xla")
    options = parser.parse_args()
    for name in options.work:
        run(name, options)


def run(name, options):
    work = works.WORKS[name]
    batches = works.sources(work, work.calls, works.MODELS[work.model]["vocab_size"])
    made, written, latencies = [], [], []
    build = measure.timed(lambda: made.append(HOWS[options.how](work)))
    [call] = made
    first_call = measure.timed(lambda: written.append(call(batches[0])))
    assert (written[0] > 0).sum() == work.batch * work.num_steps, "a hypothesis of another length"

    def repeat():
        seconds = [measure.timed(partial(call, ids)) for ids in batches]
        latencies.extend(seconds)
        return len(batches) * work.amount / sum(seconds)

    def latency():
        return {name: round(1000 * np.percentile(latencies, share), 2) for name, share in PERCENTILES.items()}

    about = {"how": options.how, "build_s": round(build, 2), "first_call_s": round(first_call, 2)}
    measure.measure(name, f"{work.unit}/s", repeat, options, **about, latency_ms=latency)


if __name__ == "__main__":
    main()
