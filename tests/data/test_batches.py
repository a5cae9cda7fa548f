import itertools
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import DataConfig
from keras_transformer.data.batches import Batch, BatchPlan, Inputs, shifted
from keras_transformer.data.cleaning import Cleaning
from keras_transformer.data.corpus import Corpus, build_corpus
from keras_transformer.data.sources import read_pairs
from keras_transformer.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer, Tokenizers, pad

TOKENS = 500


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, pairs, tokenizers):
    folder = tmp_path_factory.mktemp("corpus") / "train"
    return build_corpus(folder, pairs, tokenizers, Cleaning(DataConfig()), key="k")


@pytest.fixture(scope="module")
def plan(corpus):
    return BatchPlan(corpus, tokens_per_batch=TOKENS, seed=3)


def epoch_of(plan, epoch=0):
    begin = epoch * plan.batches_per_epoch
    return [plan.batch(k) for k in range(begin, begin + plan.batches_per_epoch)]


def rows_of(batches):
    """The pairs in the batches: tuples of source ids and labels without padding; empty rows are left out."""
    rows = [
        tuple(tuple(ids[ids != PAD_ID].tolist()) for ids in row)
        for batch in batches
        for row in zip(batch.inputs.source_ids, batch.labels, strict=True)
    ]
    return [row for row in rows if row != ((), ())]


def pairs_of(corpus):
    return [tuple(tuple(ids.tolist()) for ids in corpus.pair(i)) for i in range(len(corpus))]


def same(first, second):
    return all(map(np.array_equal, tf.nest.flatten(first), tf.nest.flatten(second)))


class TestBatch:
    def test_the_target_is_the_labels_shifted_behind_the_begin_of_sentence(self, plan):
        for batch in epoch_of(plan):
            for target_ids, labels, weights in zip(batch.inputs.target_ids, batch.labels, batch.weights, strict=True):
                length = int(weights.sum())
                assert weights.tolist() == [1.0] * length + [0.0] * (len(weights) - length)
                assert not labels[length:].any()
                assert not target_ids[length:].any()
                if length:
                    assert labels[length - 1] == EOS_ID
                    assert target_ids[:length].tolist() == [BOS_ID, *labels[: length - 1]]

    def test_types_and_shapes(self, plan):
        for batch in epoch_of(plan):
            (source_ids, target_ids), labels, weights = batch
            assert [x.dtype for x in (source_ids, target_ids, labels, weights)] == [np.int32] * 3 + [np.float32]
            assert (*source_ids.shape, labels.shape[1]) in plan.shapes
            assert target_ids.shape == labels.shape == weights.shape

    def test_the_weights_count_the_target_tokens(self, plan, corpus):
        assert sum(batch.weights.sum() for batch in epoch_of(plan)) == corpus.target_lengths.sum()


class TestEpoch:
    @pytest.mark.parametrize("tokens", [131, 500, 5000, 10**6])
    @pytest.mark.parametrize("multiple", [1, 3])
    @pytest.mark.parametrize("buckets", [1, 8])
    def test_nothing_is_lost_or_doubled(self, corpus, tokens, multiple, buckets):
        plan = BatchPlan(corpus, tokens_per_batch=tokens, rows_multiple=multiple, buckets=buckets)
        assert len(plan.shapes) <= buckets
        for epoch in (0, 1, 7):
            batches = epoch_of(plan, epoch)
            assert sorted(rows_of(batches)) == sorted(pairs_of(corpus))
            assert all(len(batch.labels) % multiple == 0 for batch in batches)
            assert all(batch.labels.size <= tokens and batch.inputs.source_ids.size <= tokens for batch in batches)

    def test_validation_stays_in_line(self, corpus):
        plan = BatchPlan(corpus, tokens_per_batch=TOKENS, shuffle=False)
        assert same(epoch_of(plan, 0), epoch_of(plan, 5))
        longest = [batch.labels.shape[1] for batch in epoch_of(plan)]
        assert longest == sorted(longest)
        assert sorted(rows_of(epoch_of(plan))) == sorted(pairs_of(corpus))

    def test_every_epoch_mixes_pairs_and_batches(self, plan):
        first, second = epoch_of(plan, 0), epoch_of(plan, 1)
        assert rows_of(first) != rows_of(second)
        assert {frozenset(rows_of([batch])) for batch in first}.isdisjoint(frozenset(rows_of([b])) for b in second)
        assert [b.labels.shape for b in first] != [b.labels.shape for b in second]
        assert [b.labels.shape for b in first] != sorted(b.labels.shape for b in first)

    def test_the_reported_padding_is_that_of_the_batches(self, plan):
        sources, labels = zip(*((batch.inputs.source_ids, batch.labels) for batch in epoch_of(plan)), strict=True)
        for padding, arrays in zip(plan.padding, (sources, labels), strict=True):
            assert padding == pytest.approx(np.mean(np.concatenate([array.ravel() for array in arrays]) == PAD_ID))
        assert f"source {plan.padding[0]:.1%}, target {plan.padding[1]:.1%}" in plan.describe()

    def test_the_description_names_every_shape(self, plan):
        for rows, source_length, target_length in plan.shapes:
            assert f"{rows} x ({source_length}, {target_length})" in plan.describe()
        assert f"{plan.batches_per_epoch} batches" in plan.describe()


class TestBatchNumber:
    def test_it_and_the_seed_are_all_that_a_batch_depends_on(self, corpus, plan):
        numbers = [0, 5, plan.batches_per_epoch, 12_345, 3]
        forwards = [plan.batch(k) for k in numbers]
        again = BatchPlan(Corpus(corpus.folder), tokens_per_batch=TOKENS, seed=3)
        backwards = [again.batch(k) for k in reversed(numbers)]
        assert same(forwards, backwards[::-1])

    def test_another_seed_gives_another_order_of_the_same_pairs(self, corpus, plan):
        other = BatchPlan(corpus, tokens_per_batch=TOKENS, seed=4)
        assert other.shapes == plan.shapes
        assert rows_of(epoch_of(other)) != rows_of(epoch_of(plan))
        assert sorted(rows_of(epoch_of(other))) == sorted(rows_of(epoch_of(plan)))

    def test_the_order_does_not_change_with_the_release_of_numpy(self, plan):
        order = plan._mixed(2).order
        keys = np.random.PCG64([3, 2]).random_raw(len(plan.corpus) + plan.batches_per_epoch)[len(plan.corpus) :]
        assert order.tolist() == sorted(range(plan.batches_per_epoch), key=keys.tolist().__getitem__)

    def test_a_late_batch_is_at_hand_at_once(self, corpus):
        plan = BatchPlan(corpus, tokens_per_batch=TOKENS)
        begin = time.perf_counter()
        plan.batch(1_000_000)
        assert time.perf_counter() - begin < 0.5  # seconds; it takes a millisecond


class TestDataset:
    def test_it_is_the_batches_from_any_start_without_end(self, plan):
        start = plan.batches_per_epoch - 2
        batches = list(itertools.islice(plan.dataset(start), 5))
        assert same(batches, [plan.batch(start + i) for i in range(5)])
        assert all(isinstance(batch, Batch) and isinstance(batch.inputs, Inputs) for batch in batches)

    def test_the_shapes_are_left_open(self, plan):
        spec = plan.dataset().element_spec
        assert [x.shape.as_list() for x in tf.nest.flatten(spec)] == [[None, None]] * 4
        assert spec.weights.dtype == tf.float32

    @pytest.mark.parametrize("epoch", [0, 2])
    def test_one_pass_is_one_epoch(self, plan, epoch):
        dataset = plan.epoch_dataset(epoch)
        assert same(list(dataset), epoch_of(plan, epoch))
        assert len(list(dataset)) == plan.batches_per_epoch  # and can be repeated


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def sampled(request, pairs, tmp_path_factory):
    sides = zip(*pairs, strict=True)
    tokenizers = Tokenizers(*(Tokenizer.train(side, vocab_size=400, kind=request.param) for side in sides))
    folder = tmp_path_factory.mktemp("sampled") / "train"
    corpus = build_corpus(folder, pairs, tokenizers, Cleaning(DataConfig()), key="k")
    return BatchPlan(corpus, tokens_per_batch=1500, subword_sampling=0.2)


class TestSubwordSampling:
    def test_the_text_of_every_batch_is_cut_anew_and_stays_the_same_text(self, sampled, pairs):
        tokenizers = sampled.corpus.tokenizers
        for epoch in (0, 1):
            sources, targets = zip(*rows_of(epoch_of(sampled, epoch)), strict=True)
            decoded = zip(tokenizers.source.decode(sources), tokenizers.target.decode(targets), strict=True)
            assert sorted(decoded) == sorted(pairs)
        stored = set(pairs_of(sampled.corpus))
        rows = rows_of(epoch_of(sampled, 0))
        assert sum(row in stored for row in rows) < 0.2 * len(rows)

    def test_it_is_a_function_of_the_seed_and_the_number(self, sampled):
        other = BatchPlan(sampled.corpus, tokens_per_batch=1500, subword_sampling=0.2, seed=1)
        assert same(sampled.batch(5), sampled.batch(5))
        assert not any(same(sampled.batch(5), plan.batch(k)) for plan, k in ((sampled, 6), (other, 5)))

    def test_the_padding_is_estimated_well(self, sampled):
        labels = [batch.labels for epoch in range(3) for batch in epoch_of(sampled, epoch)]
        measured = np.mean(np.concatenate([array.ravel() for array in labels]) == PAD_ID)
        assert sampled.padding[1] == pytest.approx(measured, abs=0.03)

    def test_a_pair_that_does_not_fit_is_cut_anew(self, sampled):
        calls = []

        def sample(rows, amount, seeds):  # fits at the third time only
            calls.append(tuple(seeds))
            return [[[7] * (2 if len(calls) % 3 == 0 else 999)] * len(rows)] * 2

        sampled.corpus.sample, kept = sample, sampled.corpus.sample
        try:
            rows = rows_of([sampled.batch(0)])
        finally:
            sampled.corpus.sample = kept
        assert set(rows) == {((7, 7), (7, 7))}
        assert len(set(calls)) == len(calls) == 3

    @pytest.mark.parametrize("ids", [[7] * 999, [EOS_ID]], ids=["too long", "nothing left"])
    def test_what_does_not_fit_gives_way_to_the_stored_pieces(self, sampled, ids):
        sampled.corpus.sample, sample = (lambda rows, *_: [[ids] * len(rows)] * 2), sampled.corpus.sample
        try:
            assert sorted(rows_of(epoch_of(sampled))) == sorted(pairs_of(sampled.corpus))
        finally:
            sampled.corpus.sample = sample

    def test_no_text_is_cut_off_where_shapes_may_not_be_wide(self, sampled, pairs):
        narrow = BatchPlan(sampled.corpus, tokens_per_batch=1500, subword_sampling=0.2, max_length=5)
        sources, targets = zip(*rows_of(epoch_of(narrow)), strict=True)
        tokenizers = sampled.corpus.tokenizers
        decoded = zip(tokenizers.source.decode(sources), tokenizers.target.decode(targets), strict=True)
        assert sorted(decoded) == sorted(pairs)


@pytest.fixture(scope="module")
def multi30k(shared_data, tmp_path_factory):
    files = tuple(str(shared_data / "multi30k" / f"train.{language}") for language in ("en", "de"))
    pairs = list(read_pairs(files))
    shared = Tokenizer.train(itertools.chain.from_iterable(pairs), vocab_size=10_000)
    folder = tmp_path_factory.mktemp("multi30k") / "train"
    return build_corpus(folder, pairs, Tokenizers(shared, shared), Cleaning(DataConfig()), key="k")


class TestRealText:
    @pytest.mark.parametrize("tokens", [4096, 8192, 25_000])
    def test_padding_is_below_15_percent(self, multi30k, tokens):
        plan = BatchPlan(multi30k, tokens_per_batch=tokens)
        assert max(plan.padding) < 0.15
        assert plan.num_tokens[1] / plan.batches_per_epoch > 0.84 * tokens

    def test_opening_and_resuming_at_step_a_million_take_no_time(self, multi30k):
        begin = time.perf_counter()
        corpus = Corpus(multi30k.folder)
        opened = time.perf_counter()
        BatchPlan(corpus, tokens_per_batch=4096).batch(1_000_000)
        assert opened - begin < 0.1  # seconds; it takes 0.5 ms
        assert time.perf_counter() - opened < 1.0  # it takes 10 ms

    def test_an_epoch_loses_no_sentence(self, multi30k):
        plan = BatchPlan(multi30k, tokens_per_batch=4096, rows_multiple=8)
        assert sorted(rows_of(epoch_of(plan))) == sorted(pairs_of(multi30k))


def test_no_shape_is_wider_than_the_longest_text(corpus, pairs, tokenizers):
    sampled = Corpus(corpus.folder, tokenizers)
    longest = int(max(sampled.source_lengths.max(), sampled.target_lengths.max()))
    for most, expected in ((None, False), (longest, True)):
        plan = BatchPlan(sampled, tokens_per_batch=1500, subword_sampling=0.5, max_length=most)
        assert (max(max(shape[1:]) for shape in plan.shapes) <= longest) is expected


def test_ids_are_shifted_in_the_graph_of_a_pipeline_as_outside_of_it():
    source_ids, labels = np.array([[7, 3, 0], [8, 9, 3]], np.int32), np.array([[5, 6, 3, 0], [3, 0, 0, 0]], np.int32)
    expected = shifted(source_ids, labels)
    assert expected.inputs.target_ids.tolist() == [[2, 5, 6, 0], [2, 0, 0, 0]]
    (found,) = tf.data.Dataset.from_tensors((source_ids, labels)).map(shifted)
    for ours, theirs in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


def test_an_array_beside_a_tensor_becomes_one():
    source_ids, labels = [[7, 3]], tf.ragged.constant([[5, 6, 3]])
    for found in (shifted(source_ids, labels), shifted(labels, source_ids)):
        assert all(tf.is_tensor(ids) for ids in tf.nest.flatten(found))


def test_strings_become_batches_in_the_graph_of_a_pipeline(tokenizers):
    texts = ["Anna sleeps.", "Anna sees the dog."], ["Anna schläft.", "Anna sieht den Hund."]
    ids = [pad(tokenizer.encode(side)) for tokenizer, side in zip(tokenizers, texts, strict=True)]
    source, target = (tokenizer.graph_tokenizer() for tokenizer in tokenizers)
    pipeline = tf.data.Dataset.from_tensor_slices(texts).batch(2)
    (found,) = pipeline.map(lambda a, b: shifted(source.encode_tensor(a), target.encode_tensor(b)))
    for ours, theirs in zip(tf.nest.flatten(found), tf.nest.flatten(shifted(*ids)), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("kind", [np.array, tf.constant], ids=["arrays", "tensors"])
@pytest.mark.parametrize("source_ids, labels", [([1, 3], [4, 3]), ([[1, 3]], [[4, 3], [5, 3]])])
def test_what_are_no_pairs_is_refused(kind, source_ids, labels):
    with pytest.raises(ValueError, match=r"Expected ids \(B, S\) and labels \(B, T\). Received: "):
        shifted(kind(source_ids), kind(labels))
