"""How an error about an unknown name ends, in every room alike."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """The nearest allowed name, if one is near, and all of them: what follows "unknown ...; " in an error message.

    >>> did_you_mean("snapkw", ["snapkv", "knorm"])
    "did you mean 'snapkv'? Allowed: knorm, snapkv"
    >>> did_you_mean("seed", [])
    'Allowed: none'
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"Allowed: {', '.join(names) or 'none'}"
