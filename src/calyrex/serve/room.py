"""How much more can run at the same time."""

from calyrex.serve.request import Generation


class Room:
    """Places for answers, counted in rows and in tokens.

    All rows of a batch are as long as its longest, so a batch takes rows times longest row.
    """

    def __init__(self, max_answers: int, max_tokens: int) -> None:
        """Begin with nothing taken.

        Args:
            max_answers: answers at the same time, of all models together.
            max_tokens: tokens of their prompts and answers, padding included.
        """
        self.max_answers = max_answers
        self.max_tokens = max_tokens
        self._sizes: dict[str, tuple[int, int]] = {}  # rows and tokens of the longest, by model

    def take(self, generation: Generation, num_answers: int) -> bool:
        """Take places for answers of a request; return False, and take none, where they do not fit.

        One request always fits where nothing else runs.
        """
        rows, longest = self._sizes.get(generation.model.name, (0, 0))
        size = (rows + num_answers, max(longest, generation.num_tokens))
        sizes = {**self._sizes, generation.model.name: size}
        is_fitting = (
            sum(rows for rows, _ in sizes.values()) <= self.max_answers
            and sum(rows * longest for rows, longest in sizes.values()) <= self.max_tokens
        )
        if is_fitting or not self._sizes:
            self._sizes = sizes
            return True
        return False
