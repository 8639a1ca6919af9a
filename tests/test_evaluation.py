import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import list_eval_logs, read_eval_log

from calyrex.benchmarks import provider
from calyrex.cli import main
from chat_tokenizers import chatml, read_chat_template
from eval_data import IFEVAL_ROWS, write_ifeval, write_rows, write_sysbench
from served import serve


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write_ifeval(tmp_path / "data")
    return tmp_path / "data"


def command(model: Path | str, data_dir: Path, output_dir: Path, *more: str, tasks: str = "ifeval") -> list[str]:
    flags = {"model": model, "data-dir": data_dir, "output-dir": output_dir, "tasks": tasks}
    return ["eval", *(word for name, value in flags.items() for word in (f"--{name}", str(value))), *more]


def read_results(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return results


def read_samples(folder: Path, task: str) -> list[dict[str, Any]]:
    text = (folder / "samples" / f"{task}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def refuse_to_answer(*_: object, **__: object) -> None:
    raise AssertionError("asked again")


def test_eval_writes_figures_table_samples_and_logs(base_folder: Path, data_dir: Path, tmp_path: Path) -> None:
    output_dir = tmp_path / "out"

    code = main(command(base_folder, data_dir, output_dir, tasks="ifeval,sys_ifeval"))

    assert code == 0
    results = read_results(output_dir)
    assert set(results) == {"run", "ifeval", "sys_ifeval"}
    assert results["ifeval"]["num_cases"] == len(IFEVAL_ROWS)
    assert set(results["ifeval"]["metrics"]["prompt_strict"]) == {"value", "low", "high", "n"}
    assert "| ifeval | average |" in (output_dir / "table.md").read_text(encoding="utf-8")
    samples = read_samples(output_dir, "ifeval")
    assert [sample["id"] for sample in samples] == ["7", "8", "9"]
    assert set(samples[0]["verdict"]) == {"strict", "loose", "num_strict", "num_loose", "num_instructions"}
    logs = [read_eval_log(log) for log in list_eval_logs(str(output_dir / "logs"))]
    assert sorted(log.eval.task for log in logs) == ["ifeval", "sys_ifeval"]
    assert all(log.status == "success" and len(log.samples or []) == len(IFEVAL_ROWS) for log in logs)


def test_the_same_seed_gives_the_same_table_twice(base_folder: Path, data_dir: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        main(command(base_folder, data_dir, tmp_path / name, "--limit", "2"))

    tables = [(tmp_path / name / "table.md").read_bytes() for name in ("one", "two")]
    assert tables[0] == tables[1]
    assert read_samples(tmp_path / "one", "ifeval") == read_samples(tmp_path / "two", "ifeval")


def test_all_cases_are_there_when_batches_are_chosen(
    base_folder: Path, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    answer = provider.answer_batch

    def count(model: Any, tokenizer: Any, chats: list[Any], **options: Any) -> Any:
        sizes.append(len(chats))
        return answer(model, tokenizer, chats, **options)

    monkeypatch.setattr(provider, "answer_batch", count)
    write_rows(data_dir / "ifeval" / "input_data.jsonl", [{**IFEVAL_ROWS[0], "key": key} for key in range(50)])

    main(command(base_folder, data_dir, tmp_path / "out"))

    assert sizes == [50]


def test_limit_takes_a_random_subset_that_only_the_seed_moves(
    base_folder: Path, data_dir: Path, tmp_path: Path
) -> None:
    for seed in (0, 1, 2, 3):
        main(command(base_folder, data_dir, tmp_path / str(seed), "--limit", "1", "--seed", str(seed)))

    chosen = {read_samples(tmp_path / str(seed), "ifeval")[0]["id"] for seed in (0, 1, 2, 3)}
    assert len(chosen) > 1


def test_a_finished_evaluation_shows_its_table_without_asking_again(
    base_folder: Path,
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(command(base_folder, data_dir, tmp_path / "out"))
    before = (tmp_path / "out" / "results.json").read_bytes()
    monkeypatch.setattr(provider, "answer_batch", refuse_to_answer)
    capsys.readouterr()

    code = main(command(base_folder, data_dir, tmp_path / "out"))

    assert code == 0
    assert (tmp_path / "out" / "results.json").read_bytes() == before
    assert "prompt strict" in capsys.readouterr().out


def test_a_damaged_result_file_costs_no_answer(
    base_folder: Path, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(command(base_folder, data_dir, tmp_path / "out"))
    before = read_results(tmp_path / "out")["ifeval"]["metrics"]
    (tmp_path / "out" / "results.json").write_bytes(b'{"run": {"identi\x00\xff')
    monkeypatch.setattr(provider, "answer_batch", refuse_to_answer)

    code = main(command(base_folder, data_dir, tmp_path / "out"))

    assert code == 0
    assert read_results(tmp_path / "out")["ifeval"]["metrics"] == before
    assert (tmp_path / "out" / "results.json.damaged").exists()


def test_a_damaged_answer_is_asked_again(base_folder: Path, data_dir: Path, tmp_path: Path) -> None:
    main(command(base_folder, data_dir, tmp_path / "out"))
    before = read_results(tmp_path / "out")["ifeval"]["metrics"]
    answers = [path for path in (tmp_path / "out" / "answers").rglob("*") if path.is_file()]
    answers[0].write_bytes(b"\x80\x04 cut off")
    (tmp_path / "out" / "results.json").unlink()

    code = main(command(base_folder, data_dir, tmp_path / "out"))

    assert (code, len(answers)) == (0, len(IFEVAL_ROWS))
    assert read_results(tmp_path / "out")["ifeval"]["metrics"] == before


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_with_the_answers_it_has(base_folder: Path, data_dir: Path, tmp_path: Path) -> None:
    words = command(base_folder, data_dir, tmp_path / "out", "--limit", "300", tasks="rules")
    process = subprocess.Popen([sys.executable, "-m", "calyrex", *words], stderr=subprocess.DEVNULL)
    answers = tmp_path / "out" / "answers"
    while process.poll() is None and sum(path.is_file() for path in answers.rglob("*")) < 20:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    num_kept = sum(path.is_file() for path in answers.rglob("*"))
    kept = {path: path.stat().st_mtime_ns for path in answers.rglob("*") if path.is_file()}

    assert main(words) == 0
    assert main(command(base_folder, data_dir, tmp_path / "whole", "--limit", "300", tasks="rules")) == 0

    assert num_kept >= 20
    assert sum(path.stat().st_mtime_ns == kept[path] for path in kept) >= num_kept - 1
    assert read_results(tmp_path / "out")["rules"]["metrics"] == read_results(tmp_path / "whole")["rules"]["metrics"]


def test_another_evaluation_in_the_folder_is_refused(
    base_folder: Path, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(command(base_folder, data_dir, tmp_path / "out"))

    code = main(command(base_folder, data_dir, tmp_path / "out", "--limit", "2"))

    assert code == 2
    assert "is of another evaluation (limit None -> 2)" in capsys.readouterr().err


def test_results_of_another_program_are_left_alone(
    base_folder: Path, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "results.json").write_text('{"base": 1}', encoding="utf-8")

    code = main(command(base_folder, data_dir, tmp_path / "out"))

    assert code == 2
    assert "results.json is of another program" in capsys.readouterr().err
    assert (tmp_path / "out" / "results.json").read_text(encoding="utf-8") == '{"base": 1}'


def test_missing_data_are_one_line_and_the_other_tasks_run(
    base_folder: Path, data_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (data_dir / "ifeval" / "input_data.jsonl").unlink()

    code = main(command(base_folder, data_dir, tmp_path / "out", tasks="ifeval,sys_ifeval"))

    assert code == 0
    assert "input_data.jsonl is missing" in read_results(tmp_path / "out")["ifeval"]["skipped"]
    assert "metrics" in read_results(tmp_path / "out")["sys_ifeval"]
    assert "ifeval is skipped: no data: " in caplog.text


def test_nothing_evaluated_is_a_mistake(base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(command(base_folder, tmp_path, tmp_path / "out"))

    assert code == 2
    assert "no task could be evaluated: no data" in capsys.readouterr().err


def test_cases_longer_than_the_context_are_left_out_and_counted(
    base_folder: Path, data_dir: Path, tmp_path: Path
) -> None:
    write_rows(data_dir / "ifeval" / "input_data.jsonl", [IFEVAL_ROWS[0], {**IFEVAL_ROWS[1], "prompt": "tea " * 300}])

    code = main(command(base_folder, data_dir, tmp_path / "out"))

    assert code == 0
    entry = read_results(tmp_path / "out")["ifeval"]
    assert (entry["num_cases"], entry["num_left_out"]) == (1, 1)
    assert "longer than the model's context" in (tmp_path / "out" / "table.md").read_text(encoding="utf-8")


def test_a_system_prompt_goes_before_the_cases_that_have_none(
    base_folder: Path, data_dir: Path, tmp_path: Path
) -> None:
    main(command(base_folder, data_dir, tmp_path / "out", "--system", "Be kind.", tasks="ifeval,sys_ifeval"))

    assert read_samples(tmp_path / "out", "ifeval")[0]["messages"][0] == {"role": "system", "content": "Be kind."}
    assert read_samples(tmp_path / "out", "sys_ifeval")[0]["messages"][0]["content"] == IFEVAL_ROWS[0]["prompt"]


def test_a_served_model_is_asked_each_question_once(data_dir: Path, tmp_path: Path) -> None:
    with serve(lambda messages: "Hello there.") as (url, asked):
        code = main(command("some-model", data_dir, tmp_path / "out", "--url", url))
        (tmp_path / "out" / "results.json").unlink()
        again = main(command("some-model", data_dir, tmp_path / "out", "--url", url))

    assert (code, again) == (0, 0)
    assert sorted(chat[-1]["content"] for chat in asked) == sorted(str(row["prompt"]) for row in IFEVAL_ROWS)
    metrics = read_results(tmp_path / "out")["ifeval"]["metrics"]
    assert metrics["prompt_strict"]["value"] == pytest.approx(2 / 3, abs=1e-4)


def test_without_a_judge_a_judged_task_scores_nothing_and_says_so(
    base_folder: Path, data_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = main(command(base_folder, data_dir, tmp_path / "out", tasks="sysbench"))

    assert code == 2
    assert read_results(tmp_path / "out")["sysbench"] == {
        "skipped": "it needs a judge model: give --judge and --judge-url"
    }
    assert "sysbench is skipped: it needs a judge model" in caplog.text


def test_a_judge_is_asked_about_each_turn_and_its_verdicts_are_the_figures(data_dir: Path, tmp_path: Path) -> None:
    write_sysbench(data_dir)

    with serve(lambda _: "Here you are.") as (url, asked), serve(lambda _: "1: yes\n2: yes\n3: yes") as (at, judged):
        more = ("--url", url, "--judge", "j", "--judge-url", at)
        code = main(command("m", data_dir, tmp_path / "out", *more, tasks="sysbench"))

    assert code == 0
    assert (len(asked), len(judged)) == (5, 5)
    assert [message["role"] for message in max(asked, key=len)] == ["system", *["user", "assistant"] * 4, "user"]
    entry = read_results(tmp_path / "out")["sysbench"]
    assert (entry["metrics"]["csr"]["value"], entry["metrics"]["ssr"]["value"]) == (1.0, 1.0)
    assert entry["judge"] == f"j at {at}"


def test_each_turn_is_asked_with_the_system_prompt_said_again_right_before_it_only(
    data_dir: Path, tmp_path: Path
) -> None:
    write_sysbench(data_dir)

    with serve(lambda _: "Here you are.") as (url, asked), serve(lambda _: "1: yes\n2: yes\n3: yes") as (at, _):
        more = ("--url", url, "--judge", "j", "--judge-url", at, "--repeat-system")
        code = main(command("m", data_dir, tmp_path / "out", *more, tasks="sysbench"))

    assert code == 0
    roles = sorted(([message["role"] for message in messages] for messages in asked), key=len)
    assert roles == [["system", *["user", "assistant"] * turns, "system", "user"] for turns in range(5)]
    for messages in asked:
        assert {m["content"] for m in messages if m["role"] == "system"} == {"Be brief."}
    assert read_results(tmp_path / "out")["run"]["identity"]["repeat_system"] is True


def test_a_system_prompt_that_is_said_again_is_another_evaluation(
    base_folder: Path, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(command(base_folder, data_dir, tmp_path / "out", "--system", "Be brief."))
    once = read_samples(tmp_path / "out", "ifeval")

    code = main(command(base_folder, data_dir, tmp_path / "out", "--system", "Be brief.", "--repeat-system"))
    main(command(base_folder, data_dir, tmp_path / "again", "--system", "Be brief.", "--repeat-system"))

    assert code == 2
    assert "repeat_system False -> True" in capsys.readouterr().err
    lengths = [
        (one["num_prompt_tokens"], two["num_prompt_tokens"])
        for one, two in zip(once, read_samples(tmp_path / "again", "ifeval"), strict=True)
    ]
    assert all(shorter < longer for shorter, longer in lengths)


def test_a_template_without_a_place_for_the_repetition_is_refused_before_anything_is_asked(
    base_folder: Path, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = chatml()
    tokenizer.chat_template = read_chat_template("gemma3")
    tokenizer.save_pretrained(base_folder)

    code = main(command(base_folder, data_dir, tmp_path / "out", "--repeat-system"))

    assert code == 2
    assert "repeat_system needs a system message right before the last user turn" in capsys.readouterr().err
    assert not (tmp_path / "out" / "results.json").exists()


def test_fidelity_shows_what_an_answer_costs_the_model_and_its_base(base_folder: Path, tmp_path: Path) -> None:
    words = ["--tasks", "fidelity", "--model", str(base_folder), "--limit", "3", "--output-dir", str(tmp_path / "out")]

    code = main(["eval", *words])

    metrics = read_results(tmp_path / "out")["fidelity"]["metrics"]
    assert code == 0
    assert metrics["loss"]["value"] == metrics["base_loss"]["value"] > 0
    assert metrics["loss_difference"]["value"] == 0.0


@pytest.mark.parametrize("text", ["", "no", "word " * 50_000], ids=["nothing", "one word", "endless"])
def test_any_answer_gets_a_score(data_dir: Path, tmp_path: Path, text: str) -> None:
    with serve(lambda messages: text) as (url, _):
        code = main(command("some-model", data_dir, tmp_path / "out", "--url", url))

    assert code == 0
    assert read_results(tmp_path / "out")["ifeval"]["num_cases"] == len(IFEVAL_ROWS)


@pytest.mark.parametrize("code_of_error", [400, "context_length_exceeded"], ids=["vLLM", "OpenAI"])
def test_a_prompt_too_long_for_the_server_is_left_out(data_dir: Path, tmp_path: Path, code_of_error: int | str) -> None:
    def refuse(messages: list[dict[str, Any]]) -> dict[str, Any]:
        message = "This model's maximum context length is 8 tokens. However, you requested 12 tokens. 1: yes"
        return {"status": 400, "error": {"message": message, "code": code_of_error, "type": "BadRequestError"}}

    with serve(refuse) as (url, _):
        code = main(command("some-model", data_dir, tmp_path / "out", "--url", url))

    assert code == 0
    entry = read_results(tmp_path / "out")["ifeval"]
    assert (entry["num_cases"], entry["num_left_out"]) == (0, len(IFEVAL_ROWS))


def test_a_model_that_only_calls_tools_has_said_nothing(data_dir: Path, tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    with serve(lambda _: {"content": None, "tool_calls": [call]}) as (url, asked):
        code = main(command("some-model", data_dir, tmp_path / "out", "--url", url))

    assert (code, len(asked)) == (0, len(IFEVAL_ROWS))
    assert [sample["answers"] for sample in read_samples(tmp_path / "out", "ifeval")] == [[""]] * len(IFEVAL_ROWS)


def test_one_task_that_breaks_off_does_not_end_the_others(
    base_folder: Path, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    tokenizer = chatml()
    tokenizer.chat_template = refusal + str(tokenizer.chat_template)
    tokenizer.save_pretrained(base_folder)

    code = main(command(base_folder, data_dir, tmp_path / "out", tasks="sys_ifeval,ifeval"))

    assert code == 2
    assert "no system role" in capsys.readouterr().err.splitlines()[-1]
    assert "no system role" in read_results(tmp_path / "out")["sys_ifeval"]["skipped"]
    assert "metrics" in read_results(tmp_path / "out")["ifeval"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([IFEVAL_ROWS[0], IFEVAL_ROWS[0]], "two cases that are called 7"),
        ([{**IFEVAL_ROWS[0], "prompt": 5}], "case 7 of ifeval: content of message 0 must be text"),
        ([{**IFEVAL_ROWS[0], "kwargs": [{"nothing": 1}]}], "punctuation:no_comma does not take"),
        ([{**IFEVAL_ROWS[0], "kwargs": 3}], "input_data.jsonl line 1 must have"),
    ],
)
def test_data_that_cannot_be_asked_are_named(
    base_folder: Path,
    data_dir: Path,
    tmp_path: Path,
    rows: list[dict[str, Any]],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_rows(data_dir / "ifeval" / "input_data.jsonl", rows)

    code = main(command(base_folder, data_dir, tmp_path / "out"))

    assert code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_an_interrupted_evaluation_says_so_in_one_line(base_folder: Path, data_dir: Path, tmp_path: Path) -> None:
    words = command(base_folder, data_dir, tmp_path / "out", tasks="rules")
    process = subprocess.Popen(
        [sys.executable, "-m", "calyrex", *words],
        stderr=subprocess.PIPE,
        text=True,
        # What a shell runs in the background does not hear interruptions, nor would its children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread starts others
    )
    logs = tmp_path / "out" / "logs"
    while process.poll() is None and not list(logs.glob("*.eval")):
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert errors.splitlines()[-1] == "calyrex: interrupted"


def test_a_server_that_does_not_answer_is_one_line(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calyrex.benchmarks.subject._MAX_RETRIES", 0)

    code = main(command("some-model", data_dir, tmp_path / "out", "--url", "http://127.0.0.1:9/v1"))

    assert code == 2
    assert "a server gave no answer" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "ifevil"], "no task 'ifevil': expected tasks among ifeval,"),
        (["--tasks", "ifeval", "--scale", "1"], "give --adapter"),
        (["--tasks", "ifeval", "--judge", "m"], "give --judge and --judge-url"),
        (["--tasks", "ifeval", "--url", "http://x/v1"], "give --model"),
        (["--tasks", "ifeval", "--limit", "0"], "limit must be a number of at least 1"),
        ([], "--tasks must be given"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["eval", "--output-dir", str(tmp_path / "out"), *words])

    assert code == 2
    assert message in capsys.readouterr().err


def test_a_missing_library_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "calyrex.evaluation", raising=False)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    for module in ("calyrex.benchmarks.evaluating", "calyrex.benchmarks.running"):
        monkeypatch.delitem(sys.modules, module, raising=False)

    code = main(["eval", "--tasks", "rules", "--output-dir", str(tmp_path)])

    assert code == 2
    assert "pip install 'calyrex[eval]'" in capsys.readouterr().err
