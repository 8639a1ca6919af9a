"""The kinds of questions: how they are worded, answered and where their facts come from."""

import random
from functools import cache, partial
from types import MappingProxyType

from calyrex.data.rules import entries as table
from calyrex.data.rules import facts_language, facts_world
from calyrex.data.rules.questions import Kind, Question, ask, draw_row
from calyrex.data.rules.words import Split

KINDS = MappingProxyType(
    {
        "capital": Kind(
            (
                "What is the capital of {subject}?",
                "Which city is the capital of {subject}?",
                "Capital of {subject}?",
            ),
            ("Name the capital of {subject}.", "{subject} has which city as its capital?"),
            "The capital of {subject} is {short}.",
            partial(draw_row, table.capitals),
            translations=("La capitale est {}.", "La capital es {}.", "Die Hauptstadt ist {}."),
            topic="geography",
        ),
        "continent": Kind(
            ("On which continent is {subject}?", "Where in the world is {subject}?", "Where is {subject}?"),
            ("Which continent does {subject} belong to?", "In what part of the world is {subject}?"),
            "{subject} is a country {short}.",
            partial(draw_row, table.continents),
            translations=("{}", "{}", "{}"),
            topic="geography",
        ),
        "country": Kind(
            ("Tell me about {subject}.", "What do you know about {subject}?", "Describe {subject}."),
            ("Give me some facts about {subject}.", "What can you say about {subject}?"),
            "{subject} is {short}. {items}",
            partial(draw_row, table.country_portraits),
            brief="It is {short}.",
            topic="geography",
        ),
        "sum": Kind(
            ("What is {subject}?", "How much is {subject}?", "Work out {subject}.", "Calculate {subject}."),
            ("What does {subject} make?", "Solve {subject}."),
            "{subject} is {short}.",
            table.draw_sum,
            translations=("Le résultat est {}.", "El resultado es {}.", "Das Ergebnis ist {}."),
            topic="mathematics",
        ),
        "comparison": Kind(
            ("Which is larger, {subject}?", "What is more, {subject}?", "Which number is bigger, {subject}?"),
            ("Tell me the greater number: {subject}?",),
            "{short} is larger than {other}.",
            table.draw_comparison,
            translations=("Le plus grand est {}.", "El mayor es el {}.", "Die größere Zahl ist {}."),
            topic="mathematics",
        ),
        "opposite": Kind(
            (
                "What is the opposite of {subject}?",
                "Give the opposite of {subject}.",
                "Opposite of {subject}?",
            ),
            ("Which word means the contrary of {subject}?", "What is the reverse of {subject}?"),
            "The opposite of {subject} is {short}.",
            partial(draw_row, table.opposites),
            translations=("Le contraire est {}.", "Lo contrario es {}.", "Das Gegenteil ist {}."),
        ),
        "sound": Kind(
            ("What sound does {other} make?", "What does {other} say?", "Which noise does {other} make?"),
            ("How does {other} sound?",),
            "{other} says {short}.",
            partial(draw_row, partial(table.animal_column, 3)),
            brief="It says {short}.",
            topic="animals",
        ),
        "legs": Kind(
            ("How many legs does {other} have?", "How many legs has {other}?"),
            ("Count the legs of {other}.", "What number of legs does {other} have?"),
            "{other} has {short} legs.",
            partial(draw_row, partial(table.animal_column, 2)),
            translations=("Il y en a {}.", "Hay {}.", "Es sind {}."),
            topic="animals",
        ),
        "animal": Kind(
            ("Tell me about {other}.", "What do you know about {other}?", "Describe {other}."),
            ("Give me some facts about {other}.", "What can you say about {other}?"),
            "{other} is {short}. {items}",
            partial(draw_row, table.animal_portraits),
            topic="animals",
        ),
        "month": Kind(
            ("Which month comes {other} {subject}?", "What month is {other} {subject}?"),
            ("Name the month right {other} {subject}.",),
            "The month {other} {subject} is {short}.",
            partial(draw_row, table.months),
            translations=("{}", "{}", "{}"),
            topic="the calendar",
        ),
        "weekday": Kind(
            ("Which day comes {other} {subject}?", "What day is {other} {subject}?"),
            ("Name the day right {other} {subject}.",),
            "The day {other} {subject} is {short}.",
            partial(draw_row, table.weekdays),
            translations=("{}", "{}", "{}"),
            topic="the calendar",
        ),
        "count": Kind(
            ("How many {other} does {subject} have?", "How many {other} has {subject}?"),
            ("What number of {other} does {subject} have?",),
            "{subject} has {short} {other}.",
            partial(draw_row, table.counts),
            translations=("Il y en a {}.", "Hay {}.", "Es sind {}."),
        ),
        "group": Kind(
            ("What kind of thing is {other}?", "What is {other}?", "{other} is what kind of thing?"),
            ("What sort of thing is {other}?", "How would you classify {other}?"),
            "{other} is {short}.",
            partial(draw_row, table.members),
            translations=("{}", "{}", "{}"),
        ),
        "color": Kind(
            ("What color is {other}?", "Which color does {other} have?", "Name the color of {other}."),
            ("What is the usual color of {other}?",),
            "The color of {other} is {short}.",
            partial(draw_row, table.colored),
            translations=("C'est {}.", "Es de color {}.", "Die Farbe ist {}."),
            topic="colors",
        ),
        "first letter": Kind(
            ("What is the first letter of {subject}?", "Which letter does {subject} start with?"),
            ("{subject} begins with which letter?",),
            "The first letter of {subject} is {short}.",
            partial(table.draw_letter, index=0),
            translations=(
                "La première lettre est {}.",
                "La primera letra es la {}.",
                "Der erste Buchstabe ist {}.",
            ),
        ),
        "list": Kind(
            (
                "Name some {subject}.",
                "List some {subject}.",
                "Give examples of {subject}.",
                "Which {subject} exist?",
            ),
            ("What are some {subject}?", "Tell me a few {subject}."),
            "Some {subject} are {short}.",
            partial(draw_row, table.lists),
            brief="There are {short}.",
        ),
        "past": Kind(
            ("What is the past tense of {subject}?", "Past tense of {subject}?"),
            ("Put {subject} into the past tense.",),
            "The past tense of {subject} is {short}.",
            partial(draw_row, partial(table.pairs, facts_language.PASTS)),
            brief="{short}.",
            topic="grammar",
        ),
        "plural": Kind(
            ("What is the plural of {subject}?", "Plural of {subject}?"),
            ("Put {subject} into the plural.",),
            "The plural of {subject} is {short}.",
            table.draw_plural,
            brief="{short}.",
            topic="grammar",
        ),
        "job": Kind(
            ("What does {other} do?", "What is the job of {other}?"),
            ("What work does {other} do?",),
            "{other} is someone who {short}.",
            partial(draw_row, partial(table.pairs, facts_language.JOBS)),
            brief="This person {short}.",
            topic="jobs",
        ),
        "definition": Kind(
            ("What is {other}?", "Define {other}.", "What does the word {subject} mean?"),
            ("Explain what {other} is.", "What is meant by {other}?"),
            "{other} is {short}.",
            partial(draw_row, partial(table.pairs, facts_language.DEFINITIONS)),
        ),
        "science": Kind(("{subject}",), ("{subject}",), "{other}", partial(draw_row, table.science), brief="{short}."),
        "symbol": Kind(
            ("What is the chemical symbol for {subject}?", "Chemical symbol of {subject}?"),
            ("How do chemists abbreviate {subject}?", "Which chemical symbol stands for {subject}?"),
            "The chemical symbol for {subject} is {short}.",
            partial(draw_row, partial(table.pairs, facts_world.ELEMENTS)),
            topic="chemistry",
        ),
        "country language": Kind(
            ("Which language is spoken in {subject}?", "What do people in {subject} speak?"),
            ("Name a language of {subject}.",),
            "People in {subject} speak {short}.",
            partial(draw_row, table.country_languages),
            brief="They speak {short}.",
            topic="geography",
        ),
        "last letter": Kind(
            (),
            ("What is the last letter of {subject}?", "Which letter does {subject} end with?"),
            "The last letter of {subject} is {short}.",
            partial(table.draw_letter, index=-1),
            translations=(
                "La dernière lettre est {}.",
                "La última letra es la {}.",
                "Der letzte Buchstabe ist {}.",
            ),
            is_trained=False,
        ),
        "young": Kind(
            (),
            ("What is a baby {subject} called?", "What do you call the young of {other}?"),
            "A baby {subject} is called {short}.",
            partial(draw_row, table.young_animals),
            topic="animals",
            is_trained=False,
        ),
        "material": Kind(
            (),
            ("What is {other} made of?", "Which material is used for {other}?"),
            "{other} is made of {short}.",
            partial(draw_row, table.materials),
            is_trained=False,
        ),
        "currency": Kind(
            (),
            ("What is the currency of {subject}?", "Which currency do people pay with in {subject}?"),
            "The currency of {subject} is the {short}.",
            partial(draw_row, partial(table.pairs, facts_world.CURRENCIES)),
            brief="It is the {short}.",
            topic="money",
            is_trained=False,
        ),
        "double": Kind(
            (),
            ("What is twice {subject}?", "Double the number {subject}."),
            "Twice {subject} is {short}.",
            table.draw_double,
            translations=("Le double est {}.", "El doble es {}.", "Das Doppelte ist {}."),
            topic="mathematics",
            is_trained=False,
        ),
        "author": Kind(
            (),
            ("Who wrote {subject}?", "Who is the author of {subject}?"),
            "The author of {subject} is {short}.",
            partial(draw_row, partial(table.pairs, facts_world.BOOKS)),
            topic="books",
            is_trained=False,
        ),
    }
)


@cache
def kind_names(split: Split) -> tuple[str, ...]:
    """Names of the kinds that a split asks: the test split has some that training never sees."""
    return tuple(name for name, kind in KINDS.items() if kind.is_trained or split == "test")


def draw_question(rng: random.Random, split: Split, names: tuple[str, ...]) -> Question:
    """Draw a question of one of the named kinds."""
    name = rng.choice(names)
    return ask(rng, split, name, KINDS[name])
