"""Small files of hub repositories: a question that is answered at once, also without a network."""

import re
from pathlib import Path
from typing import Literal

from calyrex.errors import CalyrexError

_HUB_ID = re.compile(r"(?:\w[\w.-]*/)?\w[\w.-]*", re.ASCII)


def is_hub_id(name: str) -> bool:
    """Tell whether a text could be the id of a hub repository: ``name`` or ``owner/name``."""
    return _HUB_ID.fullmatch(name) is not None


def fetch(name: str, files: list[str], *, repo_type: Literal["model", "dataset"] = "model") -> Path:
    """Return a folder with some files of a hub repository, from the local hub cache where they are.

    Loading what is not there would try for twenty seconds, and not tell a wrong name from no network.

    Raises:
        CalyrexError: There is no such repository, it may not be read, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    tried = f"no folder or file {name}, and"
    try:
        return Path(snapshot_download(name, allow_patterns=files, repo_type=repo_type))
    except GatedRepoError as error:
        raise CalyrexError(f"{name} is gated: accept its licence on the hub, then run `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise CalyrexError(
            f"{tried} nothing of that name on the hub: check the spelling (private: `hf auth login`)"
        ) from error
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise CalyrexError(f"{tried} the hub cannot be reached ({reason}): give a local path") from error
