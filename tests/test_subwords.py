import collections
import copy
import hashlib
import itertools
import math
import pickle
import subprocess
import sys
from random import Random

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.data.demo import demo_pairs
from keras_transformer.subwords import Subwords
from keras_transformer.tokenizer import EOS_ID, UNK_ID, Tokenizer

SENTENCES = [text for pair in demo_pairs("train", 300) for text in pair]
SENTENCES += ["naïve Łódź façade Ærø", "Ελληνικά и русский"]
WORD = "Nachmittagen"


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    return Tokenizer.train(SENTENCES, vocab_size=400, kind=request.param)


@pytest.fixture(scope="module")
def bpe():
    return Tokenizer.train(SENTENCES, vocab_size=400)


def counts_of(tokenizer, amount, draws):
    """How often a word is cut how."""
    random = Random(1).random
    [ids] = tokenizer.encode([WORD])
    subwords = Subwords(tokenizer.model_bytes)
    return collections.Counter(tuple(subwords.sample(ids, amount, random)) for _ in range(draws))


def ways(word, scores):
    """All ways to write a word in pieces."""
    if not word:
        yield ()
    for end in range(1, len(word) + 1):
        if word[:end] in scores:
            yield from ((word[:end], *rest) for rest in ways(word[end:], scores))


def test_without_a_merge_left_out_it_is_sentencepiece(bpe):
    ids = bpe.encode(SENTENCES)
    assert bpe.sample(ids, 0.0, seed=1) == ids


def test_with_every_merge_left_out_there_are_characters(bpe):
    [sampled] = bpe.sample(bpe.encode([WORD]), 1.0, seed=1)
    assert bpe.pieces(sampled) == [*f"▁{WORD}", "</s>"]


def test_merges_are_left_out_as_often_as_by_sentencepiece(bpe):
    draws = 20_000
    processor = sentencepiece.SentencePieceProcessor(model_proto=bpe.model_bytes)
    texts = [WORD] * draws
    theirs = processor.encode(texts, add_eos=True, enable_sampling=True, alpha=0.1, nbest_size=-1)
    theirs, ours = collections.Counter(map(tuple, theirs)), counts_of(bpe, 0.1, draws)
    assert len(ours) > 10
    for ids in ours | theirs:  # five standard deviations of a difference
        assert abs(ours[ids] - theirs[ids]) < 5 * math.sqrt(ours[ids] + theirs[ids] + 1), bpe.pieces(ids)


@pytest.mark.parametrize("amount", [0.1, 0.7])
def test_paths_are_as_likely_as_their_pieces(amount):
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=400, kind="unigram")
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes)
    scores = {processor.id_to_piece(i): processor.get_score(i) for i in range(4, tokenizer.vocab_size)}
    shares = {way: math.exp(amount * sum(scores[piece] for piece in way)) for way in ways(f"▁{WORD}", scores)}
    total, draws = sum(shares.values()), 20_000
    drawn = {tuple(tokenizer.pieces(ids)[:-1]): n for ids, n in counts_of(tokenizer, amount, draws).items()}
    assert len(shares) > 15 and drawn.keys() <= shares.keys()
    for way, share in shares.items():
        expected = draws * share / total
        assert abs(drawn.get(way, 0) - expected) < 5 * math.sqrt(expected + 1), way


def test_other_pieces_are_the_same_text(tokenizer):
    ids = tokenizer.encode(SENTENCES)
    sampled = tokenizer.sample(ids, 0.3, seed=0)
    assert sampled != ids
    assert tokenizer.decode(sampled) == tokenizer.decode(ids)
    assert all(row[-1] == EOS_ID for row in sampled)


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_what_is_no_piece_stays(byte_fallback):
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=700, byte_fallback=byte_fallback)
    texts = ["Anna 日本 sleeps日.", "日", "", " ", "\0", "Anna ▁ ▁▁ sleeps"]
    ids = tokenizer.encode(texts)
    sampled = tokenizer.sample(ids, 0.9, seed=3)
    assert tokenizer.decode(sampled) == tokenizer.decode(ids)
    assert [row.count(UNK_ID) for row in sampled] == [row.count(UNK_ID) for row in ids]
    assert len(sampled[0]) > len(ids[0])


def test_a_word_with_a_character_that_is_no_piece_stays(bpe):
    model = sentencepiece_model_pb2.ModelProto.FromString(bpe.model_bytes)
    (place,) = [place for place, piece in enumerate(model.pieces) if piece.piece == "N"]
    model.pieces[place].piece = "never"
    [ids] = bpe.encode([WORD])
    assert Subwords(model.SerializeToString()).sample(ids, 0.9, Random(1).random) == ids
    assert Subwords(bpe.model_bytes).sample(ids, 0.9, Random(1).random) != ids


def test_an_unknown_character_parts_its_word(tokenizer):
    ids = tokenizer.encode([f"龘{WORD}", WORD])
    assert ids[0].count(UNK_ID) == 1
    sampled = [tokenizer.sample(ids, 0.3, seed) for seed in range(50)]
    apart, whole = zip(*sampled, strict=True)
    assert len(set(map(tuple, apart))) > 3 < len(set(map(tuple, whole)))
    assert {tuple(tokenizer.decode(row)) for row in sampled} == {tuple(tokenizer.decode(ids))}


def test_a_tokenizer_that_has_sampled_can_be_copied(tokenizer):
    ids = tokenizer.encode(SENTENCES[:5])
    subwords = Subwords(tokenizer.model_bytes)
    expected = [subwords.sample(row, 0.3, Random(2).random) for row in ids]
    for copied in copy.deepcopy(subwords), pickle.loads(pickle.dumps(subwords)):
        assert [copied.sample(row, 0.3, Random(2).random) for row in ids] == expected


def test_it_is_a_function_of_ids_amount_and_seed(tokenizer):
    ids = tokenizer.encode(SENTENCES[:50])
    expected = tokenizer.sample(ids, 0.2, seed=11)
    assert tokenizer.sample(ids, 0.2, seed=12) != expected != ids
    assert tokenizer.sample(ids, 0.2, seed=11) == expected
    assert tokenizer.sample(ids, 0.1, seed=11) != expected
    alone = list(itertools.chain(*(tokenizer.sample([row], 0.2, seed=11) for row in ids)))
    assert alone[0] == expected[0] and alone != expected


def test_another_process_draws_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(SENTENCES[:200]), encoding="utf-8")
    program = """
import hashlib, sys
from keras_transformer.tokenizer import Tokenizer
tokenizer, text = Tokenizer.load(sys.argv[1]), open(sys.argv[2], encoding="utf-8").read().split("\\n")
print(hashlib.sha256(repr(tokenizer.sample(tokenizer.encode(text), 0.2, seed=5)).encode()).hexdigest())
"""
    command = [sys.executable, "-c", program, str(tmp_path / "model"), str(tmp_path / "text")]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    expected = tokenizer.sample(tokenizer.encode(SENTENCES[:200]), 0.2, seed=5)
    assert found == hashlib.sha256(repr(expected).encode()).hexdigest()
