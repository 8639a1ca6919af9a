"""Where files lie that are made once and used by every run of the user."""

import os
import sys
from pathlib import Path

from calyrex.errors import CalyrexError

CACHE_VARIABLE = "CALYREX_CACHE"


def cache_folder() -> Path:
    """Return the folder for converted models and activations: ``$CALYREX_CACHE``, else the platform's cache folder.

    Raises:
        CalyrexError: the path begins with a home folder that does not exist.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    try:
        return Path(chosen).expanduser() if chosen else _platform_cache() / "calyrex"
    except RuntimeError as error:
        raise CalyrexError(f"no home folder for the cache ({error}); set {CACHE_VARIABLE} to a whole path") from error


def _platform_cache() -> Path:
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"
