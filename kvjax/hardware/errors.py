"""Checks shared by the room: names in a table, and sizes that must be positive."""

from collections.abc import Iterable, Sequence

from kvjax.suggest import did_you_mean


def check_names(given: Iterable[str], allowed: Sequence[str], required: Sequence[str], where: str) -> None:
    """Refuses unknown names and names what is missing.

    Raises:
        ValueError: naming the field and the table (`where`) it stands in.
    """
    names = list(given)
    for name in names:
        if name not in allowed:
            raise ValueError(f"unknown field {where}.{name}; {did_you_mean(name, allowed)}")
    missing = [name for name in required if name not in names]
    if missing:
        raise ValueError(f"missing field {', '.join(f'{where}.{name}' for name in missing)}")


def check_whole(name: str, value: int) -> None:
    """Refuses anything but a whole number of at least 1.

    Raises:
        ValueError: naming the size and what was given.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
