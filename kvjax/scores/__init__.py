"""Which tokens matter: one file a method, `score(observation) -> [H, T]`, higher = keep."""

from kvjax.scores.base import Score
from kvjax.scores.knorm import Knorm
from kvjax.scores.random import Random
from kvjax.scores.snapkv import SnapKV
from kvjax.scores.streaming_llm import StreamingLLM

SCORES: dict[str, type] = {score.name: score for score in (Knorm, SnapKV, StreamingLLM, Random)}
"""Scores by their name in spec strings."""

__all__ = ["SCORES", "Knorm", "Random", "Score", "SnapKV", "StreamingLLM"]
