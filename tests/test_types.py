"""The shared records: bytes by hand, and pytrees that survive whatever JAX rebuilds them with."""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

from kvjax.types import Bytes, dense_bytes, pytree


def test_bytes_add_part_by_part():
    total = Bytes(100, 7).plus(Bytes(payload=20, metadata=3))
    assert total == Bytes(120, 10) and total.total == 130
    assert sum((Bytes(1, 2), Bytes(3, 4)), ()) == (1, 2, 3, 4)  # why `plus` exists


def test_dense_bytes_by_hand():
    # 10 tokens x 2 layers x 3 heads x 4 channels = 240 values, of K and of V, 2 bytes each
    assert dense_bytes(tokens=10, num_layers=2, num_kv_heads=3, head_dim=4) == 960
    assert dense_bytes(0, 2, 3, 4) == 0
    # Llama-3.1-8B: 32 layers, 8 KV heads of 128: 128 KiB a token
    assert dense_bytes(1, 32, 8, 128) == 131_072


@pytree
@dataclass(frozen=True)
class Record:
    """Two leaves around a static field; its constructor accepts nothing but arrays."""

    a: jax.Array
    slots: int = dataclasses.field(metadata={"static": True})
    b: jax.Array

    def __post_init__(self):
        if not isinstance(self.a, jax.Array):
            raise TypeError("not an array")


def record() -> Record:
    return Record(jnp.zeros(3), 64, jnp.ones((2, 2)))


def test_leaves_keep_their_order_and_names_and_static_fields_are_no_leaves():
    leaves, structure = jax.tree_util.tree_flatten_with_path(record())
    assert [(jax.tree_util.keystr(path), leaf.shape) for path, leaf in leaves] == [(".a", (3,)), (".b", (2, 2))]
    assert structure.num_leaves == 2


@pytest.mark.parametrize("leaf", [None, jax.ShapeDtypeStruct((1,), jnp.float32), 0, "axis"])
def test_any_leaf_can_stand_in_and_static_fields_stay(leaf):
    rebuilt = jax.tree.map(lambda _: leaf, record())
    assert isinstance(rebuilt, Record)
    assert (rebuilt.a, rebuilt.slots, rebuilt.b) == (leaf, 64, leaf)


def test_transformations_see_static_fields_as_python_numbers():
    assert jax.eval_shape(lambda r: r, record()).slots == 64
    doubled = jax.jit(lambda r: dataclasses.replace(r, a=r.a + jnp.ones(r.slots)[:3]))(record())
    assert doubled.slots == 64 and doubled.a.tolist() == [1.0, 1.0, 1.0]
    batch = Record(jnp.zeros((5, 3)), 64, jnp.ones((5, 2, 2)))
    mapped = jax.vmap(lambda r: r.b * r.slots, in_axes=(jax.tree.map(lambda _: 0, batch),))(batch)
    assert mapped.shape == (5, 2, 2) and float(mapped[0, 0, 0]) == 64.0


def test_another_static_field_is_another_structure():
    one, other = record(), dataclasses.replace(record(), slots=32)
    assert jax.tree.structure(one) != jax.tree.structure(other)
    with pytest.raises(ValueError):
        jax.tree.map(lambda x, y: x + y, one, other)
