"""``calyrex analyze``: where in the layers a system prompt's rules live."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import PreTrainedTokenizerBase

from calyrex.analysis.chats import Conversation, draw_conversations
from calyrex.analysis.document import NUM_MAPS, build_document
from calyrex.analysis.forced import force_answer
from calyrex.analysis.measuring import Record, describe_map, measure
from calyrex.analysis.options import AnalyzeOptions
from calyrex.analysis.streams import Model, require_analyzable
from calyrex.benchmarks.rules import MAX_NEW_TOKENS
from calyrex.errors import CalyrexError
from calyrex.flags import save_options
from calyrex.generation import answer_batch, context_length
from calyrex.models import BUILTIN, load_anchored, load_base, load_tokenizer, recorded_base
from calyrex.report.analysis import write_analysis
from calyrex.studies.clock import Clock
from calyrex.studies.study import read_json, write_json
from calyrex.training.fingerprint import hash_model
from calyrex.training.folder import fingerprint_files, locked, versions
from calyrex.training.progress import make_progress

DOCUMENT = "analysis.json"
_RECORD, _MEASURED, _OPTIONS = "run.json", "measured.jsonl", "options.yaml"
_FOREIGN = (_MEASURED, "study.json", "results.json", "report.html")
"""Files that a folder without a record has of another program or run."""
_GROUP_SIZE = 16
"""Conversations that the model answers in one batch: always the same ones, so that a stop changes no answer."""


def analyze(options: AnalyzeOptions) -> Path:
    """Measure what is missing of an analysis and write its document and its report.

    Returns:
        The output folder, with ``report.html``, ``analysis.md``, ``analysis.json`` and ``measured.jsonl``.

    Raises:
        CalyrexError: the model, the adapter or the data cannot be used, or the folder holds another analysis.
    """
    folder = Path(options.output_dir)
    base = options.model or (recorded_base(options.adapter) if options.adapter else BUILTIN)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), make_progress() as progress:
        model = _load(options, base)
        tokenizer = load_tokenizer(base)
        clock = Clock(folder / _RECORD, _read_record(folder / _RECORD, options, model))
        conversations = draw_conversations(options, tokenizer, context_length(model))
        save_options(options, folder / _OPTIONS)
        clock.save()
        measured = _Measured(folder / _MEASURED)
        names = [conversation.id for conversation in conversations]
        bar = progress.add_task("conversations", total=len(names), completed=len(measured.records))
        for record in _measure_missing(options, model, tokenizer, conversations, measured.records):
            measured.add(record)
            clock.save()
            progress.advance(bar)
        progress.add_task("probes and intervals", total=None)
        records = [measured.records[name] for name in names]
        document = build_document(options, base, conversations, records, clock.seconds)
        clock.save()
        write_json(folder / DOCUMENT, document)
        write_analysis(folder, document)
    _print(Console(), folder, document)
    return folder


_KEYS = ("num_answer_tokens", "log_probability", "shift", "patching", "knock_out", "stream", "blocks", "map")


class _Measured:
    """What was measured of each conversation, one line each; a line that a stop has cut short is dropped."""

    def __init__(self, path: Path) -> None:
        """Read the lines of earlier starts."""
        self.path = path
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            path.write_bytes(whole)
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            self.records: dict[str, Record] = {line["id"]: line for line in lines}
            missing = {key for line in lines for key in _KEYS if key not in line}
            if missing:
                raise ValueError(f"no {min(missing)}")
        except (ValueError, KeyError, TypeError) as error:
            raise CalyrexError(f"{path} is damaged ({error}): delete it and give the same command again") from error

    def add(self, record: Record) -> None:
        """Append a conversation."""
        with self.path.open("ab") as file:
            file.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        self.records[record["id"]] = record


def _load(options: AnalyzeOptions, base: str) -> Model:
    if options.adapter is None:
        model: Model = load_base(base, dtype=options.dtype)
    else:
        model = load_anchored(base, options.adapter, dtype=options.dtype)
    require_analyzable(model)
    return model


def _read_record(path: Path, options: AnalyzeOptions, model: Model) -> dict[str, Any]:
    """Return the record of this analysis, its earlier starts counted.

    Raises:
        CalyrexError: the folder holds another analysis.
    """
    plain = json.loads(json.dumps(vars(options), default=str))
    files = fingerprint_files(options.data) if options.data else []
    record = {"options": plain, "data": files, "weights": hash_model(model), "versions": versions()}
    if not path.exists():
        if any((path.parent / name).exists() for name in _FOREIGN):
            raise CalyrexError(f"{path.parent} holds files of another program or run; choose another output_dir")
        return {**record, "seconds": 0.0}
    earlier = read_json(path)
    try:
        before, seconds = dict(earlier["options"]), float(earlier["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise CalyrexError(f"{path} is of another program; choose another output_dir") from error
    differing = [name for name in plain if name != "output_dir" and before.get(name) != plain[name]]
    changed = [f"{name} {before.get(name)} -> {plain[name]}" for name in differing]
    changed += [f"the {name} have changed" for name in ("data", "weights") if earlier.get(name) != record[name]]
    if changed:
        raise CalyrexError(f"{path.parent} holds another analysis ({', '.join(changed)}); choose another output_dir")
    return {**record, "seconds": seconds}


def _measure_missing(
    options: AnalyzeOptions,
    model: Model,
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Conversation],
    done: dict[str, Record],
) -> Iterator[Record]:
    """Measure the conversations that are not done yet, and yield the record of each."""
    for start in range(0, len(conversations), _GROUP_SIZE):
        group = conversations[start : start + _GROUP_SIZE]
        missing = [conversation for conversation in group if conversation.id not in done]
        answers = _answer(model, tokenizer, group) if missing else {}
        for conversation in missing:
            runs = force_answer(tokenizer, conversation, options.neutral_system, model.device)
            record = measure(model, runs, f"{options.seed} {conversation.id}")
            if not all(map(math.isfinite, record["log_probability"].values())):
                raise CalyrexError(
                    f"the model gives the answer of {conversation.id} no finite probability: its weights are damaged, "
                    f"or {model.dtype} is too small for them"
                )
            is_shown = conversation in conversations[:NUM_MAPS] and record["blocks"] is not None
            map_ = describe_map(record, conversation, runs.with_rule, tokenizer) if is_shown else None
            if record["blocks"] is not None:
                del record["blocks"]["weights"]
            yield {"id": conversation.id, **record, **answers.get(conversation.id, {}), "map": map_}


def _answer(
    model: Model, tokenizer: PreTrainedTokenizerBase, group: Sequence[Conversation]
) -> dict[str, dict[str, Any]]:
    """Let the model answer conversations under built-in rules and check its answers; nothing for a user's chats."""
    checked = [(conversation, conversation.example) for conversation in group if conversation.example is not None]
    if not checked:
        return {}
    chats = [conversation.messages for conversation, _ in checked]
    answers = answer_batch(model, tokenizer, chats, max_new_tokens=MAX_NEW_TOKENS)
    return {
        conversation.id: {"own_answer": answer.text, "obeyed": example.obeyed(answer.text)}
        for (conversation, example), answer in zip(checked, answers, strict=True)
    }


def _print(console: Console, folder: Path, document: dict[str, Any]) -> None:
    for sentence in document["verdict"]:
        console.print(sentence, soft_wrap=True, markup=False, highlight=False)
    console.print(f"report   {folder / 'report.html'}", soft_wrap=True)
    console.print(f"figures  {folder / DOCUMENT}", soft_wrap=True)
