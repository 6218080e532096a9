import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def fake() -> ModuleType:
    """The module `fake_bench.py` beside this file."""
    spec = importlib.util.spec_from_file_location("fake_bench", Path(__file__).parent / "fake_bench.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
