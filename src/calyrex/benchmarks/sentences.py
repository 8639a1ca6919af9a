"""Sentence splitting for IFEval's checks, with or without NLTK's trained model on this machine."""

import logging
from importlib.util import find_spec
from pathlib import Path

from calyrex.user_cache import cache_folder

_logger = logging.getLogger(__name__)
_MODEL = "tokenizers/punkt_tab/english/"
_TABLES = ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt")
_BUNDLE = ("llama_index", "core/_static/nltk_cache")


def provide_sentence_splitter() -> None:
    """Make sure that NLTK finds a model of English sentences, without a download.

    In this order: what NLTK finds itself; the copy that llama-index-core ships; Punkt without training, which knows no
    abbreviations and so counts a few sentences too many.
    """
    import nltk

    bundle = _find_bundle()
    if bundle is not None and str(bundle) not in nltk.data.path:
        nltk.data.path.append(str(bundle))
    try:
        nltk.data.find(_MODEL)
    except LookupError:
        folder = cache_folder() / "nltk_data"
        _write_untrained(folder / _MODEL)
        nltk.data.path.append(str(folder))
        _logger.info(
            "sentences are split without NLTK's trained model, which moves a few of IFEval's verdicts; "
            "to get it: python -m nltk.downloader punkt_tab"
        )


def _find_bundle() -> Path | None:
    package, inside = _BUNDLE
    spec = find_spec(package)
    folders = (Path(folder) / inside for folder in (spec.submodule_search_locations or [])) if spec else iter(())
    return next((folder for folder in folders if (folder / _MODEL).is_dir()), None)


def _write_untrained(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in _TABLES:
        (folder / name).touch()
