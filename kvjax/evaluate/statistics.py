"""Error bars: bootstrap intervals of paired differences, Wilson intervals of proportions.

Everywhere: *data* are values of independent items `[n]`, or one array of per-token values for each context. What is
drawn again, with replacement, is

* whole contexts where there are two or more, because tokens of one context are not independent of each other;
* the tokens, where there is one context only. Neighbouring tokens are correlated, so such an interval is too narrow;
* the items, where single values are given.

Pairing is kept: an item's or context's values under both settings are drawn together.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit  # type: ignore[import-untyped]

Data = np.ndarray | Sequence[float | int] | Sequence[np.ndarray] | Sequence[Sequence[float | int]]

_NORMAL = statistics.NormalDist()
_DRAWS_AT_ONCE = 2**22  # bounds memory


@dataclass(frozen=True)
class Interval:
    """An estimate with the confidence interval [low, high] of `level`."""

    estimate: float
    low: float
    high: float
    level: float = 0.95


def bootstrap_mean(data: Data, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Interval:
    """Mean over all values (each token counts once), with its bootstrap interval.

    Args:
        data: values of items, or of the tokens of each context (see the module).
        level: confidence, in (0, 1).
        resamples: number of bootstrap samples.
        seed: of numpy's default generator: the same seed gives the same interval.

    Raises:
        ValueError: fewer than two values, an empty context, values that are not finite.

    >>> bootstrap_mean([0.0, 1.0])
    Interval(estimate=0.5, low=0.0, high=1.0, level=0.95)
    """
    sums, counts = _units(data)
    return _bootstrap(sums, counts, level, resamples, seed)


def bootstrap_ratio(
    numerator: Data, denominator: Data, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Mean of `numerator` over mean of `denominator`, with its paired bootstrap interval.

    Args as `bootstrap_mean`.

    Raises:
        ValueError: as `bootstrap_mean`; shapes that differ; a denominator whose mean is not positive.

    >>> bootstrap_ratio([1.0, 2.0], [2.0, 4.0])
    Interval(estimate=0.5, low=0.5, high=0.5, level=0.95)
    """
    top, counts = _units(numerator)
    bottom, other = _units(denominator)
    if not np.array_equal(counts, other):
        raise ValueError(
            f"numerator and denominator must pair value by value, got {_sizes(counts)} and {_sizes(other)}"
        )
    if bottom.min() <= 0:
        raise ValueError("the denominator must have a positive mean in every context (item)")
    return _bootstrap(top, bottom, level, resamples, seed)


def mean_difference(
    data: Data, reference: Data, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Mean of `data - reference`: of NLL in nats, or of accuracies from per-item hits (0 or 1). See `bootstrap_mean`.

    Raises:
        ValueError: as `bootstrap_mean`; shapes that differ.
    """
    return bootstrap_mean(_differences(data, reference), level=level, resamples=resamples, seed=seed)


def relative_change(
    data: Data, reference: Data, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Mean of `data` over mean of `reference`, minus 1: e.g. the relative change of mean NLL. See `bootstrap_ratio`.

    Raises:
        ValueError: as `bootstrap_ratio`.
    """
    return bootstrap_ratio(_differences(data, reference), reference, level=level, resamples=resamples, seed=seed)


def wilson(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """A proportion with its Wilson score interval (E. B. Wilson, JASA 1927), which is not empty at 0 or all successes.

    Raises:
        ValueError: no trials, or successes outside 0..trials.

    >>> interval = wilson(20, 20)
    >>> interval.estimate, round(interval.low, 3), interval.high
    (1.0, 0.839, 1.0)
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"successes must lie in 0..trials and trials be 1 or more, got {successes} of {trials}")
    _check_level(level)
    z = _NORMAL.inv_cdf((1 + level) / 2)
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2)) / (1 + z * z / trials)
    low = 0.0 if successes == 0 else centre - half  # exact there: no rounding
    high = 1.0 if successes == trials else centre + half
    return Interval(share, low, high, level)


def _bootstrap(top: np.ndarray, bottom: np.ndarray, level: float, resamples: int, seed: int) -> Interval:
    """Interval of sum(top) / sum(bottom) when its units [n] are drawn again.

    Expanded percentile interval (T. C. Hesterberg, "What Teachers Should Know About the Bootstrap", The American
    Statistician 2015): quantiles are taken further out as Student's t and sqrt(n / (n - 1)) ask, since plain
    percentiles of few units are too narrow. With three to five units that is the whole range of the resamples.
    """
    n = len(top)
    _check_level(level)
    if resamples < 1:
        raise ValueError(f"resamples must be 1 or more, got {resamples}")
    generator = np.random.default_rng(seed)
    step = max(1, _DRAWS_AT_ONCE // n)
    values = []
    for start in range(0, resamples, step):
        drawn = generator.integers(0, n, (min(step, resamples - start), n))
        values.append(top[drawn].sum(axis=1) / bottom[drawn].sum(axis=1))
    t = float(stdtrit(n - 1, (1 + level) / 2))
    tail = _NORMAL.cdf(-t * math.sqrt(n / (n - 1)))
    low, high = np.quantile(np.concatenate(values), [tail, 1 - tail])
    return Interval(float(top.sum() / bottom.sum()), float(low), float(high), level)


def _contexts(data: Data) -> list[np.ndarray]:
    """Per-token values of each context, float64; items count as contexts of one token."""
    contexts = [np.atleast_1d(np.asarray(values, np.float64)) for values in data]
    for index, values in enumerate(contexts):
        if values.ndim != 1 or values.size == 0:
            raise ValueError(f"context {index} must hold one value a token, got shape {list(values.shape)}")
        if not np.isfinite(values).all():
            raise ValueError(f"context (item) {index} holds values that are not finite")
    return contexts


def _units(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """What is drawn again: the sum and the number of values of each unit, [n] each."""
    contexts = _contexts(data)
    if len(contexts) == 1:
        contexts = list(contexts[0][:, None])
    if len(contexts) < 2:
        raise ValueError(f"an interval needs at least two values to draw from, got {len(contexts)}")
    return np.array([c.sum() for c in contexts]), np.array([float(c.size) for c in contexts])


def _differences(data: Data, reference: Data) -> list[np.ndarray]:
    ours, theirs = _contexts(data), _contexts(reference)
    sizes = [[len(values) for values in side] for side in (ours, theirs)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"values must pair with the reference one by one, got {_sizes(sizes[0])} and {_sizes(sizes[1])}"
        )
    return [a - b for a, b in zip(ours, theirs, strict=True)]


def _sizes(counts: np.ndarray | list[int]) -> str:
    return f"{len(counts)} contexts (items) of {int(sum(counts))} values in all"


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level}")
