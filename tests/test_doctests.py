"""Every example in a docstring of kvjax runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest

import kvjax

MODULES = sorted(module.name for module in pkgutil.walk_packages(kvjax.__path__, "kvjax."))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).failed == 0
