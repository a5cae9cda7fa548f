"""Loads a SavedModel in a process of its own and answers sentences: what a server would answer.

    python export/check.py served/demo/1 < texts.json > answers.json

It knows TensorFlow and tensorflow-text and nothing of this project, as a server does not.
"""

import json
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401 - its operations


def answers(path, texts):
    """The answers of `serving_default`; the other signatures only have to answer. -> {"translations", "scores"}"""
    signatures = tf.saved_model.load(path).signatures
    text = tf.constant([text.encode() for text in texts], tf.string)
    best = signatures["serving_default"](text=text)
    signatures["translate_nbest"](text=text[:2])
    signatures["score"](source=text, target=best["translation"])
    signatures["translate_ids"](ids=tf.zeros((2, 3), tf.int32))
    translations = [translation.decode() for translation in best["translation"].numpy().tolist()]
    return {"translations": translations, "scores": best["score"].numpy().tolist()}


if __name__ == "__main__":
    json.dump(answers(sys.argv[1], json.load(sys.stdin)), sys.stdout)
