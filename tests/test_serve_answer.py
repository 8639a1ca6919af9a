import random

import pytest
from transformers import PreTrainedTokenizerFast

from calyrex.serve.answer import StopText, TextStream
from chat_tokenizers import byte_level, sentence_piece

TEXTS = (
    "Obey now. What is the capital?",
    "Grün 🙂🙂 é 规则 \u202e\n\n  x\ty",
    "a\N{REPLACEMENT CHARACTER}b",
    " lead",
    "",
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("tokenizer", [byte_level("qwen3"), sentence_piece("prepend"), sentence_piece("never")])
def test_the_parts_of_a_streamed_text_are_the_whole(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer(text * 5, add_special_tokens=False)["input_ids"]
    stream = TextStream(tokenizer)

    parts = [stream.add(token_id) for token_id in ids]

    assert "".join(parts) + stream.finish() == tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("seed", range(20))
def test_random_tokens_are_streamed_whole(seed: int) -> None:
    tokenizer = byte_level("qwen3")
    ids = [random.Random(seed).randrange(len(tokenizer)) for _ in range(60)]
    stream = TextStream(tokenizer)

    parts = [stream.add(token_id) for token_id in ids]

    assert "".join(parts) + stream.finish() == tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize("stops", [("END",), ("aab", "b!"), ("xyz",), ()])
def test_a_stop_text_cuts_wherever_the_parts_end(size: int, stops: tuple[str, ...]) -> None:
    text = "aaab EN ENEND more b! aab"
    stop, shown, rest = StopText(stops), "", text

    while rest and not stop.is_stopped:
        shown, rest = shown + stop.add(rest[:size]), rest[size:]
    shown += stop.finish()

    places = [text.index(each) for each in stops if each in text]
    assert size == 100 or shown == text[: min(places, default=len(text))]
    assert shown in (text, *(text[:place] for place in places))
