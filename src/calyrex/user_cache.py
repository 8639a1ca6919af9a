"""Where files lie that are made once and used by every run of the user."""

import os
import sys
from pathlib import Path

CACHE_VARIABLE = "CALYREX_CACHE"


def cache_folder() -> Path:
    """Return the folder for converted models and activations: ``$CALYREX_CACHE``, else the platform's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return _platform_cache() / "calyrex"


def _platform_cache() -> Path:
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"
