"""Where messages of the package go: the standard library's logger `lance_io`."""

from __future__ import annotations

import logging
import os
from typing import Final

LOGGER: Final = logging.getLogger("lance_io")
LOGGER.addHandler(logging.NullHandler())
LEVEL_VARIABLE: Final = "LANCE_LOG"
_LEVELS: Final = {"trace": logging.DEBUG, "warn": logging.WARNING}


def get_log_level() -> str:
    """The level that the environment asks for, "info" unless it says."""
    return os.environ.get(LEVEL_VARIABLE, "INFO").lower()


def get_python_log_level(level: str) -> int:
    """The number that `logging` gives a level's name. Raises `ValueError` for a name it does not know."""
    found = _LEVELS.get(level.lower(), logging.getLevelName(level.upper()))
    if not isinstance(found, int):
        raise ValueError(f"Invalid log level: {level}")
    return found


def set_logger(
    file_path: str | os.PathLike[str] = "lance_io.log",
    name: str = "lance_io",
    level: int = logging.INFO,
    format_string: str | None = None,
    log_handler: logging.Handler | None = None,
) -> logging.Logger:
    """Write messages of the package to a file, or to a handler.

    file_path      the file, without `log_handler`
    name           logger
    level          least level that is written
    format_string  of `logging.Formatter`
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    handler = log_handler or logging.FileHandler(file_path)
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(format_string or "%(asctime)s %(name)s [%(levelname)s] %(message)s"))
    logger.addHandler(handler)
    return logger
