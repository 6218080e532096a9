"""Changes of basis before coding (none in this version): rotations, RoPE removal, low rank."""

TRANSFORMS: dict[str, type] = {}
"""Transforms by their name in spec strings."""
