"""``calyrex chat`` with a tiny model that answers in digits, which come back from text as the same tokens."""

import dataclasses
import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from calyrex.chat.dialogue import COMMANDS, Dialogue
from calyrex.chat.speaker import Speaker
from calyrex.cli import main
from calyrex.errors import CalyrexError
from calyrex.models import BUILTIN
from calyrex.options import ChatOptions
from calyrex.report.plain import make_visible
from chat_tokenizers import CHATML, chatml
from saved import save_adapter
from tiny import tiny_base

NEW = 6
QUESTIONS = ("What is this?", "And that?", "Why?")


def only(tokenizer: PreTrainedTokenizerBase, characters: str) -> list[int]:
    """Return all tokens but those of the characters."""
    kept = set(tokenizer(characters, add_special_tokens=False)["input_ids"])
    return [token for token in range(len(tokenizer)) if token not in kept]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    tokenizer = chatml()
    base = tiny_base()
    base.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    torch.nn.init.normal_(base.lm_head.weight)
    base.generation_config.suppress_tokens = only(tokenizer, "0123456789")
    base.save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    save_adapter(folder / "adapter", base)
    return folder


@pytest.fixture
def options(folder: Path) -> ChatOptions:
    return ChatOptions(adapter=str(folder / "adapter"), base=str(folder / "base"), system="Hm.", max_new_tokens=NEW)


class Chat:
    """Runs ``calyrex chat`` over lines of input."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys

    def say(self, *lines: str, adapter: bool = True, system: str | None = "Hm.") -> tuple[list[str], list[str]]:
        """Return the lines of standard output and of standard error."""
        arguments = ["--base", str(self.folder / "base"), "--max-new-tokens", str(NEW)]
        arguments += ["--adapter", str(self.folder / "adapter")] if adapter else []
        arguments += ["--system", system] if system else []
        self.monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        self.capsys.readouterr()
        assert main(["chat", *arguments]) == 0
        output = self.capsys.readouterr()
        noted = [line for line in output.err.splitlines() if line.startswith("calyrex: ") and " cut " not in line]
        return output.out.splitlines(), noted


@pytest.fixture
def chat(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Chat]:
    yield Chat(folder, monkeypatch, capsys)


def test_a_pipe_gets_one_answer_for_each_line_and_nothing_else(chat: Chat) -> None:
    answers, noted = chat.say(*QUESTIONS, "", "  ")

    assert [len(answer) for answer in answers] == [NEW, NEW, NEW]
    assert noted == []


def test_an_answer_from_the_cache_is_the_answer_of_a_fresh_start(options: ChatOptions) -> None:
    speaker = Speaker(options)
    messages = [{"role": "system", "content": "Hm."}]
    num_read: list[int] = []
    embeddings = speaker.model.get_input_embeddings()
    embeddings.register_forward_hook(lambda _module, args, _output: num_read.append(args[0].shape[1]))

    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        num_read.clear()
        cached = speaker.answer(messages, scale=1.0)
        num_read_cached = num_read[0]
        speaker.reading = None
        num_read.clear()
        fresh = speaker.answer(messages, scale=1.0)

        assert cached == fresh
        assert num_read_cached < num_read[0] or len(messages) == 2
        messages.append({"role": "assistant", "content": cached.text})


@pytest.mark.parametrize(
    ("system", "scale"), [("Hm.", 0.5), ("Hm!", 1.0), ("Hm.", 0.0)], ids=["scale", "system", "off"]
)
def test_what_was_read_otherwise_is_read_again(options: ChatOptions, system: str, scale: float) -> None:
    speaker, fresh = Speaker(options), Speaker(options)
    question = {"role": "user", "content": "What is this?"}
    first = [{"role": "system", "content": "Hm."}, question]
    said = {"role": "assistant", "content": speaker.answer(first, scale=1.0).text}
    messages = [{"role": "system", "content": system}, question, said, question]

    assert speaker.answer(messages, scale) == fresh.answer(messages, scale)


def test_base_answers_without_the_blocks_and_leaves_the_conversation_as_it_is(chat: Chat) -> None:
    anchored, _ = chat.say(*QUESTIONS)
    base, _ = chat.say(QUESTIONS[0], adapter=False)

    both, noted = chat.say(QUESTIONS[0], "/base", *QUESTIONS[1:])

    assert both == [anchored[0], base[0], *anchored[1:]]
    assert base[0] != anchored[0]
    assert noted == []


def test_chat_starts_with_the_scale_that_the_adapter_was_saved_with(options: ChatOptions, tmp_path: Path) -> None:
    folder = tmp_path / "half"
    shutil.copytree(str(options.adapter), folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "scale": 0.5}))

    dialogue = Dialogue(Speaker(dataclasses.replace(options, adapter=str(folder))))

    assert dialogue.scale == 0.5


def test_scale_0_is_the_base(chat: Chat) -> None:
    base, _ = chat.say(*QUESTIONS, adapter=False)

    answers, _ = chat.say("/scale 0", *QUESTIONS, "/scale")

    assert answers == [*base, "0"]


def test_system_shows_the_prompt_or_starts_anew_under_another(chat: Chat) -> None:
    fresh, _ = chat.say(QUESTIONS[0], system="Speak up.")

    answers, noted = chat.say(QUESTIONS[1], "/system", "/system  Speak up.", "/system", QUESTIONS[0])

    assert answers[1:] == ["Hm.", "Speak up.", fresh[0]]
    assert noted == []


def test_reset_forgets_the_conversation_and_keeps_the_system_prompt(chat: Chat) -> None:
    answers, _ = chat.say(QUESTIONS[0], QUESTIONS[1], "/reset", QUESTIONS[0], "/system")

    assert answers[2:] == [answers[0], "Hm."]


def test_two_slashes_send_text_that_begins_with_one(options: ChatOptions) -> None:
    dialogue = Dialogue(Speaker(options))

    dialogue.take("//quit is a word")

    assert dialogue.turns[0] == {"role": "user", "content": "/quit is a word"}


def test_help_names_every_command_and_quit_leaves(chat: Chat) -> None:
    shown, _ = chat.say("/help", "/quit", "What is this?")

    assert [line.split()[0] for line in shown] == list(COMMANDS)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("/scael 2", ["/scael", *COMMANDS]),
        ("/scale much", ["/scale", "at least 0", "much"]),
        ("/scale -1", ["/scale", "at least 0", "-1"]),
        ("/base", ["/base", "ask one first"]),
        ("What? " * 300, ["256 tokens", "/reset"]),
    ],
)
def test_a_mistake_is_one_line_and_the_chat_goes_on(chat: Chat, line: str, named: list[str]) -> None:
    expected, _ = chat.say(QUESTIONS[0])

    answers, noted = chat.say(line, QUESTIONS[0])

    assert answers == expected
    assert len(noted) == 1
    assert [word for word in named if word not in noted[0]] == []


def test_an_answer_ends_where_the_context_of_the_model_ends(chat: Chat) -> None:
    answers, noted = chat.say(*["What is this, then?" for _ in range(12)])

    assert [len(answer) for answer in answers] == [NEW] * len(answers)
    assert len(answers) + len(noted) == 12
    assert all("context of 256 tokens" in line for line in noted)


def test_a_template_that_refuses_a_system_role_is_one_line_and_the_chat_goes_on(
    options: ChatOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    speaker = Speaker(options)
    dialogue = Dialogue(speaker)
    refusal = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    speaker.tokenizer.chat_template = refusal + CHATML
    dialogue.system = None

    with pytest.raises(CalyrexError, match="system"):
        dialogue.take("/system Speak up.")
    dialogue.take(QUESTIONS[0])

    assert len(dialogue.turns) == 2
    assert len(capsys.readouterr().out.strip()) == NEW


def test_a_stopped_answer_is_kept_and_the_next_one_is_right(options: ChatOptions) -> None:
    speaker = Speaker(options)
    dialogue = Dialogue(speaker)
    calls = 0

    def stop(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt

    handle = speaker.model.get_input_embeddings().register_forward_hook(stop)
    dialogue.take(QUESTIONS[0])
    handle.remove()
    stopped = dialogue.turns[-1]["content"]
    dialogue.take(QUESTIONS[1])

    fresh = Speaker(options).answer([{"role": "system", "content": "Hm."}, *dialogue.turns[:-1]], scale=1.0)
    assert len(stopped) == 3
    assert dialogue.turns[-1]["content"] == fresh.text


def test_interrupt_at_the_prompt_leaves(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(io.StringIO):
        def readline(self, size: int | None = -1, /) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())

    assert main(["chat", "--base", str(folder / "base")]) == 0
    assert capsys.readouterr().out == "\n"


def test_input_that_is_not_text_is_one_line_and_exit_code_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9 au lait\n"), encoding="utf-8"))

    assert main(["chat", "--base", str(folder / "base")]) == 2
    assert r"must be utf-8 text, got b'\xe9'" in capsys.readouterr().err


def test_scale_without_blocks_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--base", str(folder / "base"), "--scale", "2"]) == 2
    assert "start with --adapter" in capsys.readouterr().err


def test_escapes_of_the_model_do_not_reach_the_terminal(
    options: ChatOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    speaker = Speaker(options)
    speaker.model.generation_config.suppress_tokens = only(speaker.tokenizer, "\x1b")

    Dialogue(speaker).take(QUESTIONS[0])

    assert capsys.readouterr().out == "␛" * NEW + "\n"


def test_steering_characters_become_visible_and_others_stay() -> None:
    text = "tab\t, line\n, é 漢 👍 [bold]x[/bold]"

    assert make_visible(text) == text
    assert make_visible("\x1b[2J\x07\r\x00\x7f\x9b\u202e\ud800") == "␛[2J␇␍␀␡" + "\ufffd" * 3


@pytest.mark.real_model
def test_the_built_in_model_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("What is the capital of France?\nAnd of Italy?\n"))

    code = main(["chat", "--base", BUILTIN, "--max-new-tokens", "12"])

    output = capsys.readouterr().out
    assert code == 0
    assert "Paris" in output
    assert "Rome" in output
