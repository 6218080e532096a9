"""What a score is: a number for each cached token of each KV head, higher = keep."""

from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Array, Float

from kvjax.types import Observation


@runtime_checkable
class Score(Protocol):
    """Which tokens matter: a frozen dataclass with one pure method, for one layer of one sequence.

    `queries` is how many of the last tokens' queries the score reads (0: none; -1: all of the context's). A context
    that does not have more tokens than that is refused before anything runs.
    """

    name: ClassVar[str]

    @property
    def queries(self) -> int:
        """How many of the last tokens' queries `__call__` reads; -1 for all."""
        ...

    def __call__(self, obs: Observation) -> Float[Array, "H T"]:
        """Scores of every token; +inf protects a token. What padding scores does not matter: it is never kept."""
        ...
