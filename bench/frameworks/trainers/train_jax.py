"""JAX: one process a rank, data parallel over all of them with collectives over gloo; every step is one compiled program."""

import os
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy
from jax._src import distributed
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from user_code import Between, Shards, read_shard

LENGTH, VOCABULARY, WIDTH = 32, 128, 256


def initial():
    keys = jax.random.split(jax.random.key(1), 3)
    shapes = ((VOCABULARY, WIDTH), (WIDTH, WIDTH), (WIDTH, VOCABULARY))
    return [jax.random.normal(key, shape) * 0.02 for key, shape in zip(keys, shapes, strict=True)]


def loss_fn(parameters, tokens):
    embed, hidden, out = parameters
    logits = jnp.tanh(embed[tokens[:, :-1]] @ hidden) @ out
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1).mean()


@partial(jax.jit, donate_argnums=0)
def train_step(parameters, tokens):
    loss, gradients = jax.value_and_grad(loss_fn)(parameters, tokens)
    return [one - 0.1 * gradient for one, gradient in zip(parameters, gradients, strict=True)], loss


def batches(rank):
    path = Shards(rank, 0, 0, 0).path
    chance = numpy.random.default_rng(rank)
    while True:
        read_shard(path)
        yield chance.integers(VOCABULARY, size=(8, LENGTH + 1), dtype=numpy.int32)


def main():
    world, rank = int(os.environ["FRAMEWORKS_WORLD"]), int(sys.argv[2])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", world, rank)
    mesh = Mesh(numpy.array(jax.devices()), ("data",))
    rows, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    parameters = jax.jit(initial, out_shardings=everywhere)()
    between = Between(
        rank,
        partial(multihost_utils.sync_global_devices, "evaluation"),
        lambda value: multihost_utils.process_allgather(numpy.array([value])),
        lambda file: [file.write(numpy.asarray(one.addressable_data(0)).tobytes()) for one in parameters],
        compile_anew,
        all_gather=lambda value: multihost_utils.process_allgather(numpy.array([value, value, value])),
        evaluate=lambda: evaluate(parameters, rows, next(batches(rank))),
        await_word=lambda: distributed.global_state.client.blocking_key_value_get("prepared", 3_600_000),
    )
    for local in batches(rank):
        tokens = jax.make_array_from_process_local_data(rows, local)
        parameters, loss = train_step(parameters, tokens)
        loss.block_until_ready()
        if between.steps():
            break
    multihost_utils.sync_global_devices("end")


def evaluate(parameters, rows, local):
    jax.jit(loss_fn)(parameters, jax.make_array_from_process_local_data(rows, local)).block_until_ready()


def compile_anew():
    """A program that is new each time, and takes XLA long."""

    def deep(x):
        for turn in range(600):
            x = jnp.cumsum(jax.nn.softmax(jnp.sin(x * 1.01 + turn)), -1)
        return x

    jax.jit(deep, device=jax.local_devices()[0])(numpy.ones((8, 64), numpy.float32))


if __name__ == "__main__":
    main()
