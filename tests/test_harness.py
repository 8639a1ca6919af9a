import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model

pytest.importorskip("lm_eval", reason="lm-eval is not installed")

from calyrex.benchmarks.harness import evaluate_mmlu
from calyrex.benchmarks.mmlu import Question, summarise_mmlu
from calyrex.benchmarks.repetition import SystemPrompt
from calyrex.config import CalyrexConfig
from calyrex.errors import CalyrexError
from calyrex.span import encode_chat
from chat_tokenizers import byte_level, chatml
from tiny import tiny_base, train_blocks

pytestmark = pytest.mark.filterwarnings("default")  # lm-eval's own are not ours to mend

SYSTEM = "Say abc."
QUESTIONS = [
    Question("anatomy/3", "What holds you up?", ["A bone", "Air", "Two of them", "Nothing"], 0),
    Question("anatomy/7", "Where?", ["Here", "There", "Everywhere else", "No"], 2),
    Question("virology/0", "Is it small?", ["Yes", "No", "Not at all", "Perhaps it is"], 1),
]
HEADS = {"letters": "multiple choice questions (with answers)", "cloze": "questions (with answers)"}


def tiny_model(tokenizer: Any = None, *, has_blocks: bool = False) -> Any:
    base = tiny_base(vocab_size=len(tokenizer or chatml()))
    base.config.max_position_embeddings = 1024
    if not has_blocks:
        return base
    model = get_peft_model(base, CalyrexConfig(placement=[3, 4])).eval()
    train_blocks(model)
    return model


def plain_prompt(question: Question, form: str) -> tuple[str, str]:
    """The first line and the question of a format, written out plainly."""
    head = f"The following are {HEADS[form]} about {question.subject}.\n\n"
    if form == "cloze":
        return head, f"Question: {question.text}\nAnswer:"
    choices = "\n".join(f"{letter}. {choice}" for letter, choice in zip("ABCD", question.choices, strict=True))
    return head, f"{question.text}\n{choices}\nAnswer:"


def rate(model: Any, tokenizer: Any, prompt: str, continuation: str, **options: Any) -> float:
    """The log-likelihood of a text after a prompt, written out plainly."""
    start = len(tokenizer(prompt.rstrip())["input_ids"])
    ids = torch.tensor([tokenizer(prompt + continuation)["input_ids"]])
    if "system_mask" in options:
        mask = torch.zeros_like(ids, dtype=torch.bool)
        mask[:, : options["system_mask"].shape[1]] = options["system_mask"]
        options["system_mask"] = mask
    with torch.no_grad():
        log_probs = model(ids, **options).logits[0].log_softmax(dim=-1)
    return float(log_probs[range(start - 1, ids.shape[1] - 1), ids[0, start:]].sum())


@pytest.mark.parametrize("has_blocks", [False, True], ids=["base", "blocks"])
def test_without_a_system_prompt_the_base_rates_the_choices_after_the_plain_text(has_blocks: bool) -> None:
    tokenizer, base = chatml(), tiny_model()

    scored = evaluate_mmlu(tiny_model(has_blocks=has_blocks), tokenizer, QUESTIONS)

    assert [one.case.id for one in scored] == [question.id for question in QUESTIONS]
    for question, one in zip(QUESTIONS, scored, strict=True):
        prompts = {form: "".join(plain_prompt(question, form)) for form in HEADS}
        assert one.case.reference["prompts"] == prompts
        letters = [rate(base, tokenizer, prompts["letters"], f" {letter}") for letter in "ABCD"]
        cloze = [rate(base, tokenizer, prompts["cloze"], f" {choice}") for choice in question.choices]
        # The same arithmetic in another order of batches.
        torch.testing.assert_close(
            one.case.reference["log_likelihoods"], {"letters": letters, "cloze": cloze}, rtol=1e-4, atol=1e-3
        )
        by_character = [value / len(choice) for value, choice in zip(cloze, question.choices, strict=True)]
        assert one.verdict == {
            "letters": letters.index(max(letters)) == question.gold,
            "cloze": by_character.index(max(by_character)) == question.gold,
        }
        assert one.answers == [
            "ABCD"[letters.index(max(letters))], question.choices[by_character.index(max(by_character))]
        ]  # fmt: skip


@pytest.mark.parametrize("has_blocks", [False, True], ids=["base", "blocks"])
def test_with_a_system_prompt_the_blocks_hear_exactly_its_span(has_blocks: bool) -> None:
    tokenizer, model = chatml(), tiny_model(has_blocks=has_blocks)

    scored = evaluate_mmlu(model, tokenizer, QUESTIONS, system=SystemPrompt(SYSTEM))

    for question, one in zip(QUESTIONS, scored, strict=True):
        expected = {}
        for form in HEADS:
            head, user = plain_prompt(question, form)
            chat = [{"role": "system", "content": f"{SYSTEM}\n\n{head}"}, {"role": "user", "content": user}]
            prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            assert one.case.reference["prompts"][form] == prompt
            options = {"system_mask": encode_chat(tokenizer, chat)["system_mask"]} if has_blocks else {}
            texts = list("ABCD") if form == "letters" else question.choices
            expected[form] = [rate(model, tokenizer, prompt, text, **options) for text in texts]
        torch.testing.assert_close(one.case.reference["log_likelihoods"], expected, rtol=1e-4, atol=1e-3)
        assert one.case.messages[0] == {"role": "system", "content": SYSTEM}


def test_a_system_prompt_that_is_said_again_stands_right_before_the_question() -> None:
    tokenizer, model = chatml(), tiny_model(has_blocks=True)

    (one,) = evaluate_mmlu(model, tokenizer, QUESTIONS[:1], system=SystemPrompt(SYSTEM, is_repeated=True))

    for form, texts in (("letters", list("ABCD")), ("cloze", QUESTIONS[0].choices)):
        head, user = plain_prompt(QUESTIONS[0], form)
        system = {"role": "system", "content": f"{SYSTEM}\n\n{head}"}
        chat = [system, system, {"role": "user", "content": user}]
        prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        system_mask = encode_chat(tokenizer, chat)["system_mask"]
        assert one.case.reference["prompts"][form] == prompt
        expected = [rate(model, tokenizer, prompt, text, system_mask=system_mask) for text in texts]
        # The same arithmetic in another order of batches.
        torch.testing.assert_close(one.case.reference["log_likelihoods"][form], expected, rtol=1e-4, atol=1e-3)


def test_the_system_prompt_reaches_the_blocks_at_all() -> None:
    model = tiny_model(has_blocks=True)

    with_blocks = evaluate_mmlu(model, chatml(), QUESTIONS[:1], system=SystemPrompt(SYSTEM))[0].case.reference[
        "log_likelihoods"
    ]
    with model.disable_adapter():
        without = evaluate_mmlu(model, chatml(), QUESTIONS[:1], system=SystemPrompt(SYSTEM))[0].case.reference[
            "log_likelihoods"
        ]

    assert with_blocks["letters"] != pytest.approx(without["letters"], abs=1e-2)


def test_the_numbers_are_those_of_lm_evals_own_evaluation() -> None:
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM

    from calyrex.benchmarks.harness import _build_tasks

    model, tokenizer = tiny_model(), chatml()
    scored = evaluate_mmlu(model, tokenizer, QUESTIONS)

    own = HFLM(model, tokenizer=tokenizer, batch_size=1, device=None)
    results = evaluate(own, _build_tasks(QUESTIONS), bootstrap_iters=0)["results"]

    for form, tasks, metric in (("letters", "mmlu_{}", "acc,none"), ("cloze", "mmlu_{}_continuation", "acc_norm,none")):
        anatomy, virology = (results[tasks.format(subject)][metric] for subject in ("anatomy", "virology"))
        assert sum(answer.verdict[form] for answer in scored) == pytest.approx(2 * anatomy + virology)


def test_the_headline_is_the_accuracy_of_the_letters() -> None:
    scored = evaluate_mmlu(tiny_model(), chatml(), QUESTIONS)

    metrics = summarise_mmlu(scored)

    assert list(metrics) == ["accuracy", "accuracy_cloze"]
    assert metrics["accuracy"].value == sum(one.verdict["letters"] for one in scored) / 3
    assert metrics["accuracy"].n == metrics["accuracy_cloze"].n == 3


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}", "drops"),
        (chatml().chat_template.replace("message['content']", "message['content'][0]['text']"), "differ from those"),
    ],
    ids=["refuses", "drops", "reads lists of parts only"],
)
@pytest.mark.parametrize("has_blocks", [False, True], ids=["base", "blocks"])
def test_a_template_that_loses_the_system_prompt_is_refused(template: str, message: str, has_blocks: bool) -> None:
    tokenizer = chatml()
    tokenizer.chat_template = template

    with pytest.raises(CalyrexError, match=message):
        evaluate_mmlu(tiny_model(has_blocks=has_blocks), tokenizer, QUESTIONS, system=SystemPrompt(SYSTEM))


@pytest.mark.parametrize("name", ["llama3", "llama3_1", "qwen2_5", "gemma3", "phi3", "gptoss"])
def test_real_templates_keep_the_system_prompt(name: str) -> None:
    tokenizer = byte_level(name)

    scored = evaluate_mmlu(
        tiny_model(tokenizer, has_blocks=True), tokenizer, QUESTIONS[:1], system=SystemPrompt(SYSTEM)
    )

    assert len(scored) == 1


@pytest.mark.parametrize("system", [None, SystemPrompt(SYSTEM)])
def test_questions_that_are_too_long_are_left_out_and_counted(
    system: SystemPrompt | None, caplog: pytest.LogCaptureFixture
) -> None:
    long = Question("virology/1", "Why? " * 400, ["a", "b", "c", "d"], 0)

    scored = evaluate_mmlu(tiny_model(has_blocks=True), chatml(), [*QUESTIONS, long], system=system)

    assert [one.case.id for one in scored] == [question.id for question in QUESTIONS]
    assert "too long for the model: 1" in caplog.text


def test_a_model_without_numbers_is_refused() -> None:
    model = tiny_model()
    model.lm_head.weight.data.fill_(float("nan"))

    with pytest.raises(CalyrexError, match="NaN"):
        evaluate_mmlu(model, chatml(), QUESTIONS)


def test_progress_ends_at_one() -> None:
    shares: list[float] = []

    evaluate_mmlu(tiny_model(), chatml(), QUESTIONS, on_progress=shares.append)

    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert shares[0] > 0


@pytest.fixture
def forwards() -> Iterator[Any]:
    """A model that counts its forwards."""
    model = tiny_model()
    model.count = 0

    def count(*_: object) -> None:
        model.count += 1

    handle = model.register_forward_hook(count)
    yield model
    handle.remove()


def test_answers_in_the_cache_are_not_computed_again(forwards: Any, tmp_path: Path) -> None:
    cache = tmp_path / "folder" / "mmlu.sqlite"
    first = evaluate_mmlu(forwards, chatml(), QUESTIONS, cache_file=cache)
    count = forwards.count

    again = evaluate_mmlu(forwards, chatml(), QUESTIONS, cache_file=cache)

    assert again == first
    assert forwards.count == count


def test_a_stopped_run_goes_on_where_it_was(forwards: Any, tmp_path: Path) -> None:
    def stop(share: float) -> None:
        if share > 0.3:
            raise KeyboardInterrupt

    cache, many = tmp_path / "mmlu.sqlite", [QUESTIONS[0]._replace(id=f"anatomy/{n}", text="x" * n) for n in range(16)]
    expected = evaluate_mmlu(forwards, chatml(), many)
    count, forwards.count = forwards.count, 0

    with pytest.raises(KeyboardInterrupt):
        evaluate_mmlu(forwards, chatml(), many, cache_file=cache, on_progress=stop)
    assert 0 < forwards.count < count
    scored = evaluate_mmlu(forwards, chatml(), many, cache_file=cache)

    assert forwards.count <= count + 1
    assert [one.verdict for one in scored] == [one.verdict for one in expected]


@pytest.mark.parametrize("damage", ["text", "cut"])
def test_a_damaged_cache_is_set_aside_and_said_so(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache, model = tmp_path / "mmlu.sqlite", tiny_model()
    expected = evaluate_mmlu(model, chatml(), QUESTIONS, cache_file=cache)
    content = {"text": b"no database at all " * 100, "cut": cache.read_bytes()[:5000]}[damage]
    cache.write_bytes(content)

    with caplog.at_level(logging.WARNING):
        scored = evaluate_mmlu(model, chatml(), QUESTIONS, cache_file=cache)

    assert scored == expected
    assert "is damaged" in caplog.text
    assert (tmp_path / "mmlu.sqlite.damaged").read_bytes() == content
    assert cache.read_bytes() != content


def test_a_cache_that_another_run_holds_is_left_alone(tmp_path: Path) -> None:
    cache = tmp_path / "mmlu.sqlite"
    evaluate_mmlu(tiny_model(), chatml(), QUESTIONS, cache_file=cache)
    other = sqlite3.connect(cache, timeout=0)
    other.execute("BEGIN EXCLUSIVE")
    content = cache.read_bytes()

    with pytest.raises(CalyrexError, match="is another run using it"):
        evaluate_mmlu(tiny_model(), chatml(), QUESTIONS, cache_file=cache)

    other.close()
    assert cache.read_bytes() == content


@pytest.mark.slow
def test_what_a_killed_run_has_computed_is_kept(tmp_path: Path) -> None:
    cache = tmp_path / "mmlu.sqlite"
    code = f"""
import os, test_harness
from pathlib import Path
test_harness.evaluate_mmlu(
    test_harness.tiny_model(), test_harness.chatml(), test_harness.QUESTIONS,
    cache_file=Path({str(cache)!r}), on_progress=lambda share: os._exit(9),
)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    ended = subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True)

    assert ended.returncode == 9
    with sqlite3.connect(cache) as database:
        (count,) = database.execute("SELECT count(*) FROM unnamed").fetchone()
    database.close()
    assert 0 < count < 24


def test_an_adapter_of_another_kind_is_measured_without_a_mask() -> None:
    from peft import LoraConfig

    model = get_peft_model(tiny_model(), LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]))

    assert isinstance(model, PeftModel)
    assert len(evaluate_mmlu(model, chatml(), QUESTIONS, system=SystemPrompt(SYSTEM))) == 3
