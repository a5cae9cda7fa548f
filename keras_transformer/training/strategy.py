"""Where the replicas run: names of the configuration -> `tf.distribute` strategies."""

import contextlib
import json
import os
import re

import tensorflow as tf

from keras_transformer.config import ConfigError
from keras_transformer.screen import warn
from keras_transformer_cli.errors import reason
from keras_transformer_cli.interruption import killed_by_interrupt


class LostWorkerError(RuntimeError):
    """Another worker has ended, or cannot be reached any more."""

    exit_code = 1  # of a command that it ends


def make_strategy(name):
    """Makes a strategy. auto: all GPUs of this machine, else one device. multi_worker: the cluster of TF_CONFIG."""
    if name == "multi_worker":  # before anything looks at the devices
        addresses = _addresses(os.environ.get("TF_CONFIG"))
        warn(f"Waiting until all workers are there: {', '.join(addresses)}")
        return _multi_worker()
    if name == "auto":
        _warn_of_cluster(os.environ.get("TF_CONFIG"))
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        devices = gpus or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()  # the default: everything on the first GPU, or on the CPU


def _multi_worker():
    try:
        with killed_by_interrupt():  # which waits in native code
            return tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.UnknownError as error:  # of its gRPC server
        raise OSError(
            "A worker must be able to listen at its own address in TF_CONFIG; another process may have it, such as the "
            f"same command started twice. Received: {reason(error.message)}, TF_CONFIG={os.environ['TF_CONFIG']}"
        ) from error


def _addresses(text):
    """The addresses in TF_CONFIG. One that names no workers or is invalid is refused: TensorFlow would go on alone, or
    raise other errors."""
    try:
        given = json.loads(text or "")
        task, cluster = given["task"], tf.train.ClusterSpec(given["cluster"])
        cluster.task_address(task["type"], int(task["index"]))
        found = [cluster.task_address(job, index) for job in cluster.jobs for index in cluster.task_indices(job)]
        if not all(re.fullmatch(r".+:\d+", address) for address in found):
            raise ValueError("an address is a host and a port")
        return found
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            '`train.strategy="multi_worker"` needs the environment variable TF_CONFIG, JSON that lists the workers and '
            """says which one this is: {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", """
            f""""index": 0}}}}. Received: {f"TF_CONFIG={text}" if text else "no TF_CONFIG"}."""
        ) from error


def _warn_of_cluster(text):
    """Says that a cluster in TF_CONFIG has no effect; platforms set that variable for a single machine, too."""
    try:
        workers = _addresses(text)
    except ConfigError:
        return
    if len(workers) > 1:
        warn(
            f'TF_CONFIG names {len(workers)} processes, and this one trains by itself; `train.strategy="multi_worker"` '
            "lets them train together."
        )


@contextlib.contextmanager
def lost_workers_reported(strategy):
    """A context that turns the error that a lost worker causes in all others into a `LostWorkerError` of one line."""
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        if not has_several_workers(strategy):
            raise
        raise LostWorkerError(
            "Another worker has ended, or cannot be reached any more. Start all of them again, each with the command "
            f"it had; the run goes on from its newest checkpoint. Received: {reason(error.message)}"
        ) from error


def describe(strategy):
    """The devices of a run, as it reports them."""
    kind, replicas = "GPU" if tf.config.list_logical_devices("GPU") else "CPU", strategy.num_replicas_in_sync
    return kind if replicas == 1 else f"{kind}, {replicas} replicas"


def num_local_replicas(strategy):
    return 1 if strategy.num_replicas_in_sync == 1 else len(strategy.extended.worker_devices)


def has_several_workers(strategy):
    return strategy.num_replicas_in_sync > num_local_replicas(strategy)


def worker_index(strategy):
    """This process among the workers, from 0; 0 is the chief, the one that writes."""
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.task_type:
        return 0
    before = 0 if resolver.task_type == "chief" else len(resolver.cluster_spec().as_dict().get("chief", ()))
    return before + resolver.task_id


def is_chief(strategy):
    return worker_index(strategy) == 0


def barrier(strategy):
    """Waits until every worker has come here."""
    from_chief(strategy, 0.0)


def from_chief(strategy, number):
    """The chief's value of `number`, on every worker. A collective: every worker has to call it."""
    return _sum(strategy, number, only_chief=True)


def is_same(strategy, number):
    """Whether every worker has the chief's `number`; all of them get the answer. A collective, too."""
    return _sum(strategy, float(number != from_chief(strategy, number))) == 0.0


def _sum(strategy, number, only_chief=False):
    """The sum of the workers' numbers, each taken once for every replica of the worker, or the chief's number alone."""
    if not has_several_workers(strategy):
        return number
    return float(_reduced(strategy, tf.constant(number, tf.float64), only_chief))


@tf.function  # one for all calls, each of which would otherwise be traced
def _reduced(strategy, number, only_chief):
    def mine():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        counts = replica == 0 if only_chief else True  # the first replica is the chief's
        return tf.where(counts, number, 0.0)

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(mine), axis=None)


def distribute(batches, strategy):
    """Cuts whole batches by rows: every replica gets an equal part of each batch, and always the same one."""
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return batches
    local = num_local_replicas(strategy)
    first = worker_index(strategy) * local

    def own_parts(batch):
        def cut(x):
            return tf.reshape(x, (replicas, -1, tf.shape(x)[1]))[first : first + local]

        return tf.nest.map_structure(cut, batch)

    def from_function(_):
        return batches.map(own_parts).unbatch().prefetch(2 * local)

    return strategy.distribute_datasets_from_function(from_function)
