"""Where messages of the package go: the standard library's logger `lance_io`."""

from __future__ import annotations

import logging
import os
from typing import Final

LOGGER: Final = logging.getLogger("lance_io")
LOGGER.addHandler(logging.NullHandler())
ENV_NAME_PYLANCE_LOGGING_LEVEL: Final = "LANCE_LOG"


def get_log_level() -> str:
    """The level that the environment asks for, "INFO" unless it says; levels of single targets are passed over."""
    levels = [one for one in os.environ.get(ENV_NAME_PYLANCE_LOGGING_LEVEL, "").split(",") if one and "=" not in one]
    return get_python_log_level((levels or ["INFO"])[0].upper())


def get_python_log_level(rust_log_level: str) -> str:
    """The name that `logging` has for a level: "DEBUG" for "trace", all others as they are."""
    return "DEBUG" if rust_log_level.upper() == "TRACE" else rust_log_level


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
