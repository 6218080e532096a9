"""How much each layer and head may keep."""

from kvjax.budgets.base import Budget, LayerPlace, tokens_per_head
from kvjax.budgets.uniform import Uniform

BUDGETS: dict[str, type] = {budget.name: budget for budget in (Uniform,)}
"""Budgets by their name in spec strings."""

__all__ = ["BUDGETS", "Budget", "LayerPlace", "Uniform", "tokens_per_head"]
