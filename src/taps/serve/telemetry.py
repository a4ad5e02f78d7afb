"""What operators see of the service: log lines."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from taps.files import json_text

_OWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, message, and whatever was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "at": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {
            name: value for name, value in record.__dict__.items() if name not in _OWN and name[0] != "_"
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json_text(line, default=str)


def set_up_logs() -> None:
    """Send the service's lines to stderr, and uvicorn's warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("taps.serve", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
