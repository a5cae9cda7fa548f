"""The beam search of a batch: which sentences go on together, and with how much room. What a step does is in beam.py.

**The last ones.** The sentences of a batch are not done at the same time. Once no more than one in `LAST` is left
(rounded up), these go on as a batch of their own until all are done. Where there is a separate step for few rows, the
last ones use it, however many they are; in a batch of few rows all sentences are last ones from the beginning.

**Room.** A step reads all the room that its state has, and few sentences come near their limit. So the state begins
with little. In a graph it grows by a stage whenever it is full. XLA has to know all shapes in advance, and compiles a
loop for each. There the first loop has half of the room that nearly every sentence needs, rounded up, and the second
loop, in a batch of `LAST` sentences or more, has all of it. Sentences that outgrow this are last ones, too, in several
batches if they are many. In a batch of fewer sentences the second loop has room for everything.
"""

from functools import partial

import tensorflow as tf

from keras_transformer.decoding.beam import advance, best, start
from keras_transformer.decoding.constraints import within
from keras_transformer.decoding.types import Steps

LAST = 4  # with captions that saves 22 % of the rows of all steps together; once half are left, 17 % (docs/log.md)
MIN_STAGE, MAX_STAGES = 8, 8  # the fewest steps that a state grows by at a time, and the most times that it grows


def beam_search(step, reorder, state, constraints, settings, max_length):
    """The best hypotheses of every sentence, `num_hypotheses` of them. -> Hypotheses

    Args:
        step: StepFn over (B, W) ids, or Steps.
        reorder: ReorderFn.
        state: what `step` gets at index 0.
        constraints: Constraints, a row a sentence.
        settings: BeamSettings.
        max_length: T, the most positions that a hypothesis may have; an int under XLA.
    """
    steps = step if isinstance(step, Steps) else Steps(lambda: step, lambda: step)
    constraints = within(constraints, max_length)
    search, batch = start(state, constraints, settings, max_length), tf.shape(constraints.max_lengths)[0]
    are_few = batch * settings.beam_width <= steps.few_rows
    last = tf.where(batch < LAST, 0, -(-batch // LAST))  # how many sentences go on as a batch of their own
    if steps.few_rows:
        last = tf.where(are_few, batch, last)
    body = partial(_one_step, reorder=reorder, settings=settings)

    def search_together():
        return _search_together(steps, body, search, constraints, last, max_length)

    def nothing_yet():
        return tf.constant(0), search

    index, found = tf.cond(are_few, nothing_yet, search_together) if steps.few_rows else search_together()
    state, found = found.state, found._replace(state=())

    def search_the_last():
        return _search_the_last(steps, body, index, found, state, constraints, last, max_length)

    found = tf.cond((last == 0) | tf.reduce_all(found.done), lambda: found, search_the_last)
    return best(found, constraints, settings)


def _search_together(steps, body, search, constraints, last, max_length):
    """Searches until no more than `last` sentences are left. -> index, Search"""
    step, run, index = steps.many(), partial(_run_with_room, steps.room, until=last), 0
    if steps.first_apart and search.last_ids.shape[1] > 1:
        index, search = run(body(step, constraints, of_one_beam=True), index, search, limit=1)
    limits, next_step = _limits(steps.room, last, max_length), body(step, constraints)
    if len(limits) > 1 and not tf.executing_eagerly():
        next_step = tf.function(next_step, autograph=False)  # traced once for all loops
    for limit in limits:
        index, search = run(next_step, index, search, limit=limit)
    return index, search


def _limits(room, last, max_length):
    """The steps before which the loops of the sentences together end."""
    if room is None or room.first_steps is None:
        return [max_length]
    first_steps = tf.minimum(room.first_steps, max_length)
    return [-(-first_steps // 2), tf.where(last == 0, max_length, first_steps)]


def _search_the_last(steps, body, index, found, state, constraints, last, max_length):
    """Goes on from step `index` with the sentences that are not done, `last` of them at a time. -> Search

    `state` is that of all sentences at this step; what is found has none.
    """
    step = steps.few()

    def finish_some(found):
        rows = tf.math.top_k(tf.cast(~found.done, tf.int32), last).indices  # those left, then some that are done
        next_step, some = body(step, _rows(constraints, rows)), _rows(found._replace(state=state), rows)
        _, some = _run_with_room(steps.room, next_step, index, some, limit=max_length, until=0)
        some = some._replace(state=())
        return (tf.nest.map_structure(lambda x, y: tf.tensor_scatter_nd_update(x, rows[:, None], y), found, some),)

    return tf.while_loop(lambda found: ~tf.reduce_all(found.done), finish_some, (found,))[0]


def _one_step(step, constraints, *, reorder, settings, of_one_beam=False):
    """The body of a loop: index, Search -> index, Search"""
    if of_one_beam:
        step = _of_one_beam(step, reorder)

    def next_step(index, search):
        index, after = advance(step, index, search, constraints, reorder=reorder, settings=settings)
        tf.nest.map_structure(lambda new, old: new.set_shape(old.shape), after, search)
        return index, after

    return next_step


def _of_one_beam(step, reorder):
    """The step for index 0, where all beams of a sentence are alike: computes one and repeats it. -> StepFn"""

    def step_of_one(ids, index, state):
        same = tf.zeros_like(ids)  # (B, W)
        logits, state = step(ids[:, :1], index, reorder(state, same[:, :1]))
        return tf.repeat(logits, ids.shape[1], axis=1), reorder(state, same)

    return step_of_one


def _run_with_room(room, next_step, index, search, *, limit, until):
    """`_run` with a state that is given the room it needs. -> index, Search"""
    if room is None:
        return _run(next_step, index, search, limit=limit, until=until)

    def run_up_to(limit, index, search):
        search = search._replace(state=room.grow(search.state, limit))
        return _run(next_step, index, search, limit=limit, until=until)

    if room.first_steps is not None:
        return run_up_to(limit, index, search)
    stage = tf.maximum(MIN_STAGE, -(-limit // MAX_STAGES))

    def next_stage(index, search):
        return run_up_to(tf.minimum((index // stage + 1) * stage, limit), index, search)

    grown = search._replace(state=room.grow(search.state, limit))  # for its shapes alone: which sizes will change
    shapes = tf.nest.map_structure(lambda x, y: x.shape.most_specific_compatible_shape(y.shape), search, grown)
    going_on = partial(_is_going_on, limit=limit, until=until)
    return tf.while_loop(going_on, next_stage, (tf.convert_to_tensor(index), search), (tf.TensorShape([]), shapes))


def _run(next_step, index, search, *, limit, until):
    """Goes on with the search at step `index`, up to step `limit` or until no more than `until` sentences are left.

    -> index, Search
    """
    going_on = partial(_is_going_on, limit=limit, until=until)
    return tf.while_loop(going_on, next_step, (tf.convert_to_tensor(index), search))


def _is_going_on(index, search, *, limit, until):
    return (index < limit) & (tf.math.count_nonzero(~search.done, dtype=tf.int32) > until)


def _rows(tree, rows):
    """The given rows of every tensor of a tree."""
    return tf.nest.map_structure(lambda x: x if x is None else tf.gather(x, rows), tree)
