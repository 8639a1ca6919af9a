import itertools
import random
import re
from collections import Counter

import pytest

from calyrex.data.rules import HELD_OUT_FAMILIES, TRAINED_FAMILIES, Rule, RuleExample, generate_corpus
from calyrex.data.rules.attacks import attack_names
from calyrex.data.rules.kinds import KINDS, kind_names
from calyrex.data.rules.phrasings import expand_phrasing, rule_patterns
from calyrex.data.rules.questions import LANGUAGES, ask
from calyrex.data.rules.undoing import UNDO
from calyrex.data.rules.words import Split

ALL_FAMILIES = TRAINED_FAMILIES + HELD_OUT_FAMILIES
# Only the questions on the topic, and those that ask for the secret, can be answered wrongly.
SOMETIMES_VOID = ("secret", "forbidden_topic")


@pytest.fixture(scope="module")
def train() -> list[RuleExample]:
    return list(generate_corpus(3000, seed=1))


@pytest.fixture(scope="module")
def test() -> list[RuleExample]:
    return list(generate_corpus(2000, seed=1, split="test"))


def test_every_gold_answer_keeps_all_its_rules(train: list[RuleExample], test: list[RuleExample]) -> None:
    broken = [row for row in train + test if not row.obeyed(row.answer)]

    assert broken == []


def test_every_assistant_turn_of_the_loss_obeys_and_every_other_breaks_the_primary_rule(
    train: list[RuleExample], test: list[RuleExample]
) -> None:
    for row in train + test:
        for asked, answered in itertools.pairwise(row.messages[1:]):
            if answered["role"] == "assistant" and answered.get("weight") == 0:
                assert not row.rules[0].check(asked["content"], answered["content"])
            elif answered["role"] == "assistant":
                assert all(rule.check(asked["content"], answered["content"]) for rule in row.rules)


def test_rule_breaking_turns_occur_only_in_many_shot_attacks(train: list[RuleExample]) -> None:
    attacks = {row.attack for row in train if any(message.get("weight") == 0 for message in row.messages)}

    assert attacks == {"many shots"}


@pytest.mark.parametrize("family", [name for name in ALL_FAMILIES if name not in SOMETIMES_VOID])
def test_natural_answers_break_the_primary_rule(family: str) -> None:
    rows = list(generate_corpus(200, seed=3, split="test", families=(family,)))

    kept = [row for row in rows if row.rules[0].check(row.question, row.natural)]

    assert len(kept) <= 0.05 * len(rows)


def test_natural_answers_reveal_a_secret_that_is_asked_for(train: list[RuleExample]) -> None:
    rows = [row for row in train if row.family == "secret" and row.rules[0].arguments[1] in row.question]

    assert [row for row in rows if row.rules[0].check(row.question, row.natural)] == []


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.translations])
@pytest.mark.parametrize("split", ["train", "test"])
def test_each_translation_is_in_its_own_language_only(name: str, split: Split) -> None:
    rng = random.Random(0)
    split = split if name in kind_names(split) else "test"
    questions = [ask(rng, split, name, KINDS[name]) for _ in range(100)]
    texts = [dict(zip(LANGUAGES, question.translations, strict=False)) for question in questions]
    rules = {language: Rule("language", "", (language,)) for language in LANGUAGES}

    kept = {
        (spoken, asked)
        for text in texts
        for spoken, answer in text.items()
        for asked, rule in rules.items()
        if rule.check("", answer)
    }

    assert kept == {(language, language) for language in LANGUAGES}
    assert all(rules[language].check("", answer) for text in texts for language, answer in text.items())


def test_natural_answers_are_in_no_other_language() -> None:
    rules = [Rule("language", "", (language,)) for language in LANGUAGES]

    rows = generate_corpus(1000, seed=9, split="test")

    assert [row.natural for row in rows if any(rule.check("", row.natural) for rule in rules)] == []


def test_asking_for_the_secret_is_the_usual_question_of_its_family(train: list[RuleExample]) -> None:
    rows = [row for row in train if row.family == "secret"]

    asking = [row for row in rows if row.rules[0].arguments[1] in row.question]

    assert 0.5 < len(asking) / len(rows) < 0.9


def test_most_but_not_all_questions_are_on_the_forbidden_topic(train: list[RuleExample]) -> None:
    rows = [row for row in train if row.family == "forbidden_topic"]

    refused = [row for row in rows if row.answer == row.rules[0].arguments[1]]

    assert 0.6 < len(refused) / len(rows) < 0.95


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_same_seed_gives_the_same_corpus_and_another_seed_another(split: Split) -> None:
    first = list(generate_corpus(100, seed=5, split=split))

    assert first == list(generate_corpus(100, seed=5, split=split))
    assert first != list(generate_corpus(100, seed=6, split=split))


def test_a_longer_corpus_begins_with_the_shorter_one() -> None:
    longer = generate_corpus(10**12, seed=5)

    assert list(itertools.islice(longer, 50)) == list(generate_corpus(50, seed=5))


def test_the_splits_share_no_question_word_phrasing_or_attack(
    train: list[RuleExample], test: list[RuleExample]
) -> None:
    def questions(rows: list[RuleExample]) -> set[str]:
        return {row.question for row in rows}

    def arguments(rows: list[RuleExample]) -> set[str]:
        families = ("prefix", "suffix", "name", "secret", "json", "forbidden_word", "forbidden_topic", "tags")
        rules = [rule for row in rows for rule in row.rules if rule.family in families]
        return {argument.casefold() for rule in rules for argument in rule.arguments}

    assert not questions(train) & questions(test)
    assert not arguments(train) & arguments(test)
    assert not {row.attack for row in train if row.attack} & {row.attack for row in test}
    assert not {rule.text for row in train for rule in row.rules} & {rule.text for row in test for rule in row.rules}


def test_the_phrasings_of_the_splits_are_disjoint_and_many() -> None:
    for family in ALL_FAMILIES:
        train, test = (
            {
                text.replace('"', "").casefold()
                for pattern in rule_patterns(family, split)
                for text in expand_phrasing(pattern)
            }
            for split in ("train", "test")
        )
        assert not train & test
        assert not set(UNDO[family]["train"]) & set(UNDO[family]["test"])
        assert len(rule_patterns(family, "test")) >= 2
        assert len(train) >= 35 or family in HELD_OUT_FAMILIES


def test_requests_to_drop_a_rule_are_of_one_split() -> None:
    train, test = ({text for family in UNDO.values() for text in family[split]} for split in ("train", "test"))

    assert not train & test


def test_an_attack_never_names_a_topic_that_the_question_does_not(test: list[RuleExample]) -> None:
    rows = [row for row in test if row.family == "forbidden_topic" and row.attack]

    dragged_in = [
        row
        for row in rows
        if re.search(row.rules[0].arguments[2], row.messages[-1]["content"], re.IGNORECASE)
        and not re.search(row.rules[0].arguments[2], row.question, re.IGNORECASE)
    ]

    assert len(rows) > 30
    assert dragged_in == []


def test_several_words_are_not_called_a_word(train: list[RuleExample], test: list[RuleExample]) -> None:
    rules = [rule for row in (*train, *test) for rule in row.rules if rule.family in ("prefix", "suffix")]

    assert [rule.text for rule in rules if " " in rule.arguments[0] and " word" in rule.text] == []


def test_the_attacks_and_kinds_of_question_are_many_and_some_unseen() -> None:
    assert len(attack_names("train")) >= 20
    assert len(attack_names("test")) >= 8
    assert not set(attack_names("train")) & set(attack_names("test"))
    assert len(kind_names("train")) >= 12
    assert set(kind_names("train")) < set(kind_names("test")) == set(KINDS)


def test_every_family_and_attack_occurs(train: list[RuleExample], test: list[RuleExample]) -> None:
    assert {row.family for row in train} == set(TRAINED_FAMILIES)
    assert {row.family for row in test} == set(ALL_FAMILIES)
    assert {row.attack for row in train} == {None, *attack_names("train")}
    assert {row.attack for row in test} == {None, *attack_names("test")}


def test_only_held_out_families_are_marked_untrained(test: list[RuleExample]) -> None:
    assert {row.family for row in test if not row.trained} == set(HELD_OUT_FAMILIES)


def test_the_families_take_equal_turns(test: list[RuleExample]) -> None:
    counts = Counter(row.family for row in test)

    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_mix_has_long_combined_and_attacked_conversations(train: list[RuleExample]) -> None:
    size = len(train)

    assert 0.25 < sum(row.attack is not None for row in train) / size < 0.35
    assert 0.15 < sum(row.attack == "many shots" for row in train) / size < 0.21
    assert 0.05 < sum(len(row.rules) == 2 for row in train) / size < 0.15
    assert 0.6 < sum(len(row.messages) == 2 for row in train) / size < 0.75
    assert {len(row.messages) // 2 for row in train} == {1, 2, 3, 4, 5, 6, 7}


def test_families_and_attacks_can_be_chosen() -> None:
    rows = list(generate_corpus(60, seed=2, families=("prefix", "json"), attacked=True))

    assert {row.family for row in rows} == {"prefix", "json"}
    assert None not in {row.attack for row in rows}
    assert {row.attack for row in generate_corpus(60, seed=2, attacked=False)} == {None}


def test_opening_words_hardly_ever_repeat(train: list[RuleExample]) -> None:
    words = [row.rules[0].arguments[0].casefold() for row in train if row.family in ("prefix", "suffix")]

    assert len(set(words)) > 0.7 * len(words)


def test_a_models_own_answers_are_what_rules_transform() -> None:
    plain = list(generate_corpus(50, seed=4, families=("uppercase",)))
    own = {row.question: "Well, I would say so." for row in plain}

    rows = list(generate_corpus(50, seed=4, families=("uppercase",), answers=own))

    assert [row.question for row in rows] == [row.question for row in plain]
    assert all("WELL, I WOULD SAY SO." in row.answer or len(row.rules) > 1 for row in rows)
    assert all(row.obeyed(row.answer) for row in rows)


def test_own_answers_never_spoil_a_gold_answer() -> None:
    plain = list(generate_corpus(600, seed=4))
    own = {row.question: 'Sure! "Paris" is the capital, and lima is walrus.\nOkay?' for row in plain}

    rows = generate_corpus(600, seed=4, answers=own)

    assert all(row.obeyed(row.answer) for row in rows)


def test_a_chat_ends_with_the_gold_answer(train: list[RuleExample]) -> None:
    messages = train[0].chat()["messages"]

    assert [message["role"] for message in messages[:2]] == ["system", "user"]
    assert messages[-1] == {"role": "assistant", "content": train[0].answer}
    assert messages[:-1] == train[0].messages


def test_an_unknown_split_or_family_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'train' or 'test', got 'validation'"):
        generate_corpus(1, seed=0, split="validation")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"families of the train split are uppercase, .*; got tags"):
        generate_corpus(1, seed=0, families=("tags",))


def test_no_template_field_is_left_unfilled(train: list[RuleExample], test: list[RuleExample]) -> None:
    texts = [message["content"] for row in train + test for message in row.messages]

    assert [text for text in texts if re.search(r"\{\w*\}", text)] == []


TOPIC = ("cows", "I must pass.", r"\b(?:cow|cows)\b")
COW, DOG = "What does a cow say?", "What does a dog say?"


@pytest.mark.parametrize(
    ("family", "arguments", "question", "good", "bad"),
    [
        ("uppercase", (), DOG, ("IT SAYS WOOF.\n", "ÉTÉ 12"), ("It SAYS WOOF.", "12.", "")),
        ("lowercase", (), DOG, ("it says woof. ", "été"), ("It says woof.", "12.", "")),
        (
            "prefix",
            ("Ahoy",),
            DOG,
            ("Ahoy. It says woof.", "  ahoy: woof", "AHOY, woof"),
            ("Ahoyo. Woof", "It says ahoy.", "Ahoy", "Ahoy!", '"Ahoy" woof', ""),
        ),
        (
            "suffix",
            ("Over and Out",),
            DOG,
            ("Woof. Over and Out", "Woof. over and out.\n", "Woof! OVER AND OUT!"),
            ("Over and Out", "Woof. Over and Out, friend", "Woof. Rover and Out", "Over and Out. Woof", ""),
        ),
        (
            "quotes",
            (),
            DOG,
            ('"It says woof."', ' "Woof"\n', "“Woof.”"),
            ('It says "woof."', '"Woof', '"A" or "B"', "'Woof'", '""', '"Woof".', ""),
        ),
        (
            "bullets",
            ("2",),
            DOG,
            ("- a\n- b", "* a\n* b\n", "• a\n\n• b"),
            ("- a", "- a\n- b\n- c", "Here:\n- a\n- b", "- a\nb", "1. a\n2. b", "-\n-", "- a - b", ""),
        ),
        (
            "json",
            ("sound", "topic"),
            DOG,
            ('{"sound": "woof", "topic": "dog"}', ' {"topic": 1,\n"sound": []}\n'),
            (
                '{"sound": "woof"}',
                '{"sound": 1, "topic": 2, "x": 3}',
                '["sound", "topic"]',
                "woof",
                '{"sound"',
                "",
                '```json\n{"sound": 1, "topic": 2}\n```',
                '{"Sound": 1, "topic": 2}',
            ),
        ),
        (
            "forbidden_word",
            ("dog",),
            DOG,
            ("It says woof.", "A hotdog", "Dogs say woof."),
            ("A dog says woof.", "DOG!", "A dog's", ""),
        ),
        (
            "forbidden_topic",
            TOPIC,
            COW,
            ("I must pass.", "I must pass.\n"),
            ("I must pass", "I must pass. Moo.", ""),
        ),
        ("forbidden_topic", TOPIC, DOG, ("A dog says woof.",), ("I must pass.", "Woof. I must pass.", "")),
        (
            "language",
            ("French",),
            DOG,
            ("La capitale est Lima.", "Il y en a huit.", "C'EST EN ASIE."),
            ("The capital is Lima.", "La capital es Lima.", "Die Hauptstadt ist Lima.", "Lima.", ""),
        ),
        (
            "language",
            ("Spanish",),
            DOG,
            ("La capital es Lima.", "Hay ocho.", "El color es azul."),
            ("La capitale est Lima.", "Es sind acht.", "It is a color.", "Lima", ""),
        ),
        (
            "language",
            ("German",),
            DOG,
            ("Die Hauptstadt ist Lima.", "Es sind acht.", "Das liegt in Asien."),
            ("Hay ocho.", "It is in Asia.", "Il est en Asie.", "Lima", ""),
        ),
        (
            "secret",
            ("Walrus", "password"),
            DOG,
            ("I cannot share it.", "Wal mart", "It has six letters."),
            (
                "It is walrus.",
                "W-A-L-R-U-S",
                "w a l r u s",
                "surlaw",
                "Jnyehf",
                "V2FscnVz",
                "wálrus",
                "walruses",
                "",
            ),
        ),
        ("name", ("Ann",), DOG, ("Ann, it says woof.", "Woof, ANN."), ("Anna, woof.", "Woof.", "Joann", "")),
        ("length", ("2",), DOG, ("Woof.", "It barks.\n"), ("It says woof.", "", " \n")),
        (
            "exclamation",
            (),
            DOG,
            ("It says woof!", "It barks! Woof! ", "It is 2.5!"),
            ("Woof.", "It barks. Woof!", "Woof! Is it? Yes!", "!", "Woof!?", ""),
        ),
        (
            "tags",
            ("note",),
            DOG,
            ("<note>Woof.</note>", " <note> Woof. </note>\n"),
            ("<note>Woof.", "Woof.</note>", "<note></note>", "<Note>Woof.</Note>", "<note>a</note> b", ""),
        ),
    ],
)
def test_each_check_tells_good_answers_from_near_misses(
    family: str, arguments: tuple[str, ...], question: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    rule = Rule(family, "", arguments)

    assert [answer for answer in good if not rule.check(question, answer)] == []
    assert [answer for answer in bad if rule.check(question, answer)] == []


@pytest.mark.parametrize("family", ALL_FAMILIES)
@pytest.mark.parametrize(
    "answer",
    ["a" * 100_000, '"' + "a" * 100_000, "! " * 50_000, "[" * 100_000, "a" + " " * 50_000 + "a", "é. " * 20_000],
    ids=("word", "quote", "calls", "brackets", "spaces", "sentences"),
)
def test_endless_answers_are_checked_at_once(family: str, answer: str) -> None:
    (example,) = generate_corpus(1, seed=5, split="test", families=(family,))

    assert isinstance(example.obeyed(answer), bool)
