"""The decoded-size budget of one piece of a take whose decoded size is unknown before the fetch. Pure."""

from __future__ import annotations

from lance_io._kernels import PieceTooLargeError


class DecodeRoom:
    """A budget of decoded bytes; when it is exceeded, the take reads fewer rows at once.

    left_bytes  remaining budget of the piece
    """

    __slots__ = ("left_bytes",)

    def __init__(self, num_bytes: int) -> None:
        self.left_bytes = num_bytes

    def expect(self, num_bytes: int) -> None:
        """Raise `PieceTooLargeError` if decoding `num_bytes` more would exceed the budget."""
        if num_bytes > self.left_bytes:
            raise PieceTooLargeError(f"{num_bytes} bytes; {self.left_bytes} are left of a piece")

    def use(self, num_bytes: int) -> None:
        """Charge `num_bytes` of decoded rows to the budget. Raises `PieceTooLargeError` if they exceed it."""
        self.expect(num_bytes)
        self.left_bytes -= num_bytes
