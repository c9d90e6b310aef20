"""Logging of the package: the standard library's logger `lance_io`."""

from __future__ import annotations

import logging
import os
from typing import Final

LOGGER: Final = logging.getLogger("lance_io")
LOGGER.addHandler(logging.NullHandler())
ENV_NAME_PYLANCE_LOGGING_LEVEL: Final = "LANCE_LOG"


def get_log_level() -> str:
    """The log level of the environment variable `LANCE_LOG`, ignoring levels of single targets (`target=level`).

    Returns:
        Name of the level, "INFO" by default.
    """
    items = os.environ.get(ENV_NAME_PYLANCE_LOGGING_LEVEL, "").split(",")
    levels = [item for item in items if item and "=" not in item]
    return get_python_log_level((levels or ["INFO"])[0].upper())


def get_python_log_level(rust_log_level: str) -> str:
    """Translate a log level of Rust to one of `logging`.

    Args:
        rust_log_level: Name of the level, in any case.

    Returns:
        "DEBUG" for "trace", other names unchanged.
    """
    return "DEBUG" if rust_log_level.upper() == "TRACE" else rust_log_level


def set_logger(
    file_path: str | os.PathLike[str] = "lance_io.log",
    name: str = "lance_io",
    level: int = logging.INFO,
    format_string: str | None = None,
    log_handler: logging.Handler | None = None,
) -> logging.Logger:
    """Log messages of the package to a file or a handler.

    Args:
        file_path: The log file; ignored with `log_handler`.
        name: Name of the logger.
        level: Minimum level of logged messages.
        format_string: Format for `logging.Formatter`; None for time, logger, level and message.
        log_handler: Handler for the messages; None logs to `file_path`.

    Returns:
        The logger.
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    handler = log_handler or logging.FileHandler(file_path)
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(format_string or "%(asctime)s %(name)s [%(levelname)s] %(message)s"))
    logger.addHandler(handler)
    return logger
