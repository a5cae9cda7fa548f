"""The training step that Keras `fit` drives, exact under `tf.distribute` and compiled by XLA.

    all-reduce (sum):  tokens of the whole batch ----------------.
                                                                 |
    replica 0:  micro-batches --XLA: forward, loss, backward of loss / tokens--> sums of losses and gradients --.
    replica 1:  micro-batches --XLA: forward, loss, backward of loss / tokens--> sums of losses and gradients --+
                                                                                                                |
                          every replica alike:  clip by global norm --> finite? --> update, EMA <-- all-reduce (sum)

The tokens of the whole batch are counted first, and each replica differentiates its share of the batch's mean loss. All
else is a sum. So R replicas with k micro-batches each make the same update as one device with the one large batch,
however the tokens are spread.
Keras would compile the whole step, collectives included, which XLA refuses; so the step is compiled here and
`jit_compile` is off. On a CPU, and where a GPU has to be deterministic, the gradients of kernels are left to TensorFlow
(fast/gradients.py).
"""

import keras
import tensorflow as tf

from keras_transformer.config import TrainConfig
from keras_transformer.data.batches import ELEMENT_SPEC, Batch, Inputs
from keras_transformer.fast.gradients import factored_gradients, multiplied
from keras_transformer.fast.products import use_products
from keras_transformer.fast.xla import by_xla_on_cpu
from keras_transformer.losses import cross_entropies
from keras_transformer.model_products import training_products
from keras_transformer.schedule import TransformerSchedule
from keras_transformer.training.optimizers import make_optimizer, one_update
from keras_transformer.training.strategy import has_several_workers, num_local_replicas
from keras_transformer.training.variables import dropout_seeds, set_weights


def schedule_of(config: TrainConfig, d_model):
    """The learning rate of a run."""
    return TransformerSchedule(
        d_model,
        config.warmup_steps,
        scale=config.learning_rate_scale,
        steps=config.steps,
        cooldown_steps=config.cooldown_steps,
    )


class Trainee(keras.Model):
    """A `Transformer` as `fit` trains it. Make it inside the scope of the strategy.

    Args:
        transformer: the model whose weights are trained.
        config: the `TrainConfig`.
    """

    def __init__(self, transformer, config: TrainConfig, **kwargs):
        super().__init__(dtype="float32", **kwargs)  # that of Keras, if it is float16, would scale the loss
        self.transformer = transformer
        self.train_config = config
        self.schedule = schedule_of(config, transformer.config.d_model)
        optimizer = make_optimizer(config.optimizer, self.schedule)
        optimizer.build(transformer.trainable_variables)
        self.num_skipped = self._counter("num_skipped")  # updates that were not made, because a gradient was not finite
        self.ema = [self._copy(v) for v in transformer.trainable_variables] if config.ema_decay else []
        replicas = range(num_local_replicas(tf.distribute.get_strategy()))
        # One function object per replica: a compiled function captures the variables of the replica that traced it.
        self._passes = [
            tf.function(
                self._both_passes,
                input_signature=[ELEMENT_SPEC, tf.TensorSpec(())],
                jit_compile=config.xla,
                autograph=False,
            )
            for _ in replicas
        ]
        # Set in one process, seen by all after the same step: the request travels with the sums of the batch.
        self.stop_request = tf.Variable(0.0, trainable=False, name="stop_request")
        self._has_several_workers = has_several_workers(tf.distribute.get_strategy())
        self.compile(optimizer=optimizer, jit_compile=False)
        self.built = True

    def _counter(self, name):
        return self.add_weight(shape=(), dtype="int64", initializer="zeros", trainable=False, name=name)

    def _copy(self, variable):
        options = {"shape": variable.shape, "dtype": variable.dtype, "name": f"ema_{variable.name}"}
        copy = self.add_weight(initializer="zeros", trainable=False, **options)
        copy.assign(variable)
        return copy

    def begin_with(self, weights):
        """Sets the weights before the first step to {variable path: array}."""
        set_weights(self.transformer, weights)
        for average, variable in zip(self.ema, self.transformer.trainable_variables, strict=False):
            average.assign(variable)

    def judged_weights(self):
        """The weights that a run is judged by: the moving average where there is one. -> {variable path: array}"""
        variables = self.transformer.trainable_variables
        return {v.path: w.numpy() for v, w in zip(variables, self.ema or variables, strict=True)}

    def call(self, inputs, training=False):
        return self.transformer(inputs, training=training)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Does nothing, as everything is built. Keras would take a batch, average it over the replicas (which fails
        where their lengths differ, and under several workers), and start the data anew."""

    def train_step(self, batch):
        context = tf.distribute.get_replica_context()
        batch = Batch(Inputs(*batch[0]), *batch[1:])
        tokens = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(batch.weights))
        gradients, totals = self._batch_sums(batch, tokens)
        totals = tf.concat([totals, [self.stop_request]], axis=0)
        gradients, totals = context.all_reduce(tf.distribute.ReduceOp.SUM, (gradients, totals))
        loss, nll, stop = tf.unstack(totals)
        norm = tf.linalg.global_norm(gradients)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        if self.train_config.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self.train_config.clip_norm, use_norm=norm)
        context.merge_call(self._update, args=(gradients, finite))
        skipped = 1.0 - tf.cast(finite, tf.float32)
        logs = {"loss": loss, "nll": nll, "tokens": tokens, "gradient_norm": norm, "skipped": skipped, "stop": stop}
        # Loss and nll are summed over the tokens of the whole batch. Keras averages the logs of several workers along
        # an axis, which scalars do not have.
        return {name: value[None] for name, value in logs.items()} if self._has_several_workers else logs

    def warm_up(self, shapes):
        """Runs and so compiles forward, loss and backward for every shape, the largest first; changes nothing."""
        seeds = dropout_seeds(self.transformer)
        before = [v.numpy() for v in seeds]
        replicas = self.distribute_strategy.num_replicas_in_sync
        for rows, source_length, target_length in sorted(shapes, key=lambda shape: -shape[0] * (shape[1] + shape[2])):
            try:
                self._run_sums(empty_batch(rows // replicas, source_length, target_length))
            except tf.errors.ResourceExhaustedError as error:
                raise MemoryError(
                    f"A batch of {rows} rows, {source_length} x {target_length} pieces, does not fit into memory. "
                    "Lower train.tokens_per_batch, or raise train.accumulation."
                ) from error
        for variable, value in zip(seeds, before, strict=True):
            variable.assign(value)

    @tf.function(reduce_retracing=True, autograph=False)
    def _run_sums(self, batch):
        self.distribute_strategy.run(lambda batch: self._batch_sums(batch, tf.constant(1.0))[1], args=(batch,))

    def _batch_sums(self, batch, tokens):
        """Gradients of loss / tokens (the whole batch's), and sums of [smoothed loss, negative log-likelihood]."""
        both_passes, variables = self._passes[_local_replica(len(self._passes))], self.transformer.trainable_variables

        def sums(batch):
            factored, totals = both_passes(batch, tokens)
            return multiplied(factored, variables), totals

        parts = self.train_config.accumulation
        if parts == 1:
            return sums(batch)
        micro = tf.nest.map_structure(lambda x: tf.reshape(x, (parts, -1, tf.shape(x)[1])), batch)
        zeros = [tf.zeros(v.shape, v.dtype) for v in variables], tf.zeros(2)

        def add(index, so_far):
            fresh = sums(tf.nest.map_structure(lambda x: x[index], micro))
            return index + 1, tf.nest.map_structure(tf.add, so_far, fresh)

        # One after the other: two at once would have the activations of both.
        return tf.while_loop(lambda index, _: index < parts, add, (0, zeros), parallel_iterations=1)[1]

    def _both_passes(self, batch, tokens):
        """Forward and backward. -> FactoredGradients and totals, as `_batch_sums` has them"""
        inputs, labels, weights = batch
        left_out = []
        with tf.GradientTape() as tape:
            with use_products(training_products(self.transformer, left_out) if self._leaves_out() else {}):
                logits = self.transformer(inputs, training=True)
            smoothed, nll = cross_entropies(labels, logits, self.train_config.label_smoothing)
            loss = tf.reduce_sum(smoothed * weights)
            share = loss / tokens  # of the whole batch's mean
        factored = factored_gradients(tape, share, self.transformer.trainable_variables, left_out)
        return factored, tf.stack([loss, tf.reduce_sum(nll * weights)])

    def _leaves_out(self):
        """Whether the traced passes leave gradients of kernels and rows of embeddings to TensorFlow, not to XLA."""
        return by_xla_on_cpu() or (self.train_config.xla and self.train_config.deterministic)

    def _update(self, strategy, gradients, finite):
        """Cross-replica: all of the update or none of it, the same on every replica."""
        finite = strategy.experimental_local_results(finite)[0]
        tf.cond(finite, lambda: self._apply(strategy, gradients), lambda: self._skip(strategy))

    def _apply(self, strategy, gradients):
        learning_rate = self.schedule(self.optimizer.iterations, self.num_skipped)
        variables = self.transformer.trainable_variables
        step = tf.cast(self.optimizer.iterations.value, tf.float32)
        with one_update(self.optimizer):
            for variable, gradient in zip(variables, gradients, strict=True):
                strategy.extended.update(variable.value, self._descend, args=(gradient, learning_rate), group=False)
        if self.ema:
            # The average starts at the first weights and forgets them soon: the decay is small at first, 0.1 at step 0.
            decay = tf.minimum(self.train_config.ema_decay, (1.0 + step) / (10.0 + step))
            for average, variable in zip(self.ema, variables, strict=True):
                strategy.extended.update(average.value, _decay_towards, args=(variable.value, decay), group=False)
        strategy.extended.update(self.optimizer.iterations.value, _add_one, group=False)
        return tf.constant(True)

    def _descend(self, variable, gradient, learning_rate):
        self.optimizer.update_step(gradient, variable, learning_rate)

    def _skip(self, strategy):
        strategy.extended.update(self.num_skipped.value, _add_one, group=False)
        return tf.constant(False)


def empty_batch(rows, source_length, target_length):
    """A batch of nothing but padding."""
    source, target = tf.zeros((rows, source_length), tf.int32), tf.zeros((rows, target_length), tf.int32)
    return Batch(Inputs(source, target), target, tf.zeros((rows, target_length)))


def _local_replica(num_local):
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)) % num_local


def _decay_towards(average, variable, decay):
    average.assign_add((variable - average) * (1.0 - decay))  # nothing, not roundings, where both are the same


def _add_one(counter):
    counter.assign_add(1)
