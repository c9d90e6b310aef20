"""How much the rows of one piece of a take may decode to, where nothing says it before they are fetched. Pure."""

from __future__ import annotations

from lance_io._kernels import PieceTooLargeError


class DecodeRoom:
    """Bytes that several rows may still become; once they are more, the take reads fewer rows at once.

    left_bytes  of what the piece may have
    """

    __slots__ = ("left_bytes",)

    def __init__(self, num_bytes: int) -> None:
        self.left_bytes = num_bytes

    def expect(self, num_bytes: int) -> None:
        """Raise `PieceTooLargeError` where rows that are not decoded yet become more than is left."""
        if num_bytes > self.left_bytes:
            raise PieceTooLargeError(f"{num_bytes} bytes; {self.left_bytes} are left of a piece")

    def use(self, num_bytes: int) -> None:
        """Rows have become so many bytes. Raises `PieceTooLargeError` where these were more than was left."""
        self.expect(num_bytes)
        self.left_bytes -= num_bytes
