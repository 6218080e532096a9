"""The blocked cache: a pool of blocks and block tables per head, sinks and recent tokens apart, fork and rollback."""

from kvjax.cache.blocks import BlockStore
from kvjax.cache.cache import Cache, CacheOverflow, crop, fork, free, grow
from kvjax.cache.layer import LayerCache

__all__ = ["BlockStore", "Cache", "CacheOverflow", "LayerCache", "crop", "fork", "free", "grow"]
