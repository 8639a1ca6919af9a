"""The facts of the tables, and those that are computed, as entries that questions are asked about."""

import random
from functools import cache

from calyrex.data.rules import facts_language, facts_nature, facts_world
from calyrex.data.rules.questions import Entry, draw_entry, pluralize, read_table, with_article
from calyrex.data.rules.words import Split, draw_name, draw_noun, in_split

_WITHOUT_ARTICLE = ("metal", "game", "sport", "color", "drink", "dance")


@cache
def capitals() -> tuple[Entry, ...]:
    """Countries and their capitals."""
    entries = []
    for country, _, capital, _ in read_table(facts_world.COUNTRIES):
        names = capital.split("/") if "/" in capital else [capital] * 4
        if capital != "-":
            has_translation = "/" in capital or not capital.endswith(" City")
            entries.append(Entry(country, names[0], translated=tuple(names[1:]) if has_translation else ()))
    return tuple(entries)


@cache
def continents() -> tuple[Entry, ...]:
    """Countries and the continents they are in."""
    translated = {row[0]: row[1:] for row in read_table(facts_world.CONTINENTS)}
    return tuple(
        Entry(country, f"in {continent}", translated=translated[continent])
        for country, continent, _, _ in read_table(facts_world.COUNTRIES)
    )


@cache
def country_languages() -> tuple[Entry, ...]:
    """Countries and a language that is spoken there."""
    rows = read_table(facts_world.COUNTRIES)
    return tuple(Entry(country, language) for country, _, _, language in rows if language != "-")


@cache
def country_portraits() -> tuple[Entry, ...]:
    """Countries with several facts about each."""
    entries = []
    for country, continent, capital, language in read_table(facts_world.COUNTRIES):
        items = [f"It is in {continent}"]
        items += [f"Its capital is {capital.split('/')[0]}"] if capital != "-" else []
        items += [f"One language is {language}"] if language != "-" else []
        entries.append(Entry(country, f"a country in {continent}", items=tuple(items)))
    return tuple(entry for entry in entries if len(entry.items) > 1)


@cache
def animal_portraits() -> tuple[Entry, ...]:
    """Animals with several facts about each."""
    entries = []
    for animal, group, legs, sound, young in read_table(facts_nature.ANIMALS):
        items = [f"It is {with_article(group)}"]
        items += [f"It has {legs} legs"] if legs != "-" else []
        items += [f"It says {sound}"] if sound != "-" else []
        items += [f"Its young is {with_article(young)}"] if young != "-" else []
        entries.append(Entry(animal, with_article(group), items=tuple(items)))
    return tuple(entry for entry in entries if len(entry.items) > 1)


@cache
def animal_column(column: int) -> tuple[Entry, ...]:
    """Animals and one column of their table: 2 legs, 3 sound."""
    numbers = {row[0]: row[1:] for row in read_table(facts_nature.NUMBERS)}
    rows = [row for row in read_table(facts_nature.ANIMALS) if row[column] != "-"]
    return tuple(Entry(row[0], row[column], translated=numbers.get(row[column], ())) for row in rows)


@cache
def young_animals() -> tuple[Entry, ...]:
    """Animals and what their young are called."""
    rows = read_table(facts_nature.ANIMALS)
    return tuple(Entry(row[0], with_article(row[4])) for row in rows if row[4] != "-")


@cache
def months() -> tuple[Entry, ...]:
    """Months and their neighbours in the year."""
    rows = read_table(facts_world.MONTHS)
    entries = []
    for before, after in zip(rows, rows[1:] + rows[:1], strict=True):
        for known, found, side in ((before, after, "after"), (after, before, "before")):
            french = f"C'est le mois d'{found[1]}." if found[1][0] in "ao" else f"C'est le mois de {found[1]}."
            translated = french, f"Es el mes de {found[2]}.", f"Das ist der {found[3]}."
            entries.append(Entry(known[0], found[0], side, translated=translated))
    return tuple(entries)


@cache
def weekdays() -> tuple[Entry, ...]:
    """Weekdays and their neighbours in the week."""
    rows = read_table(facts_world.WEEKDAYS)
    entries = []
    for before, after in zip(rows, rows[1:] + rows[:1], strict=True):
        for known, found, side in ((before, after, "after"), (after, before, "before")):
            translated = f"C'est {found[1]}.", f"Es el {found[2]}.", f"Das ist der {found[3]}."
            entries.append(Entry(known[0], found[0], side, translated=translated))
    return tuple(entries)


@cache
def counts() -> tuple[Entry, ...]:
    """Things and how many parts they have."""
    numbers = {row[0]: row[1:] for row in read_table(facts_nature.NUMBERS)}
    rows = read_table(facts_nature.COUNTS)
    return tuple(Entry(thing, number, part, translated=numbers[number]) for thing, part, number in rows)


@cache
def members() -> tuple[Entry, ...]:
    """Things and the group they belong to."""
    entries = []
    for group, *translated, names in read_table(facts_nature.GROUPS):
        things = names.split() or [row[0] for row in read_table(facts_nature.ANIMALS) if row[1] == group]
        for thing in things:
            other = thing if group in _WITHOUT_ARTICLE else with_article(thing)
            entries.append(Entry(thing, with_article(group), other, translated=tuple(translated)))
    return tuple(entries)


@cache
def colored() -> tuple[Entry, ...]:
    """Things and their usual colors."""
    colors = {row[0]: row[1:] for row in read_table(facts_nature.COLORS)}
    return tuple(
        Entry(thing.split()[-1], color, thing, translated=colors[color])
        for thing, color in read_table(facts_nature.COLORED)
    )


@cache
def lists() -> tuple[Entry, ...]:
    """Categories and some of their members."""
    entries = []
    for category, names in read_table(facts_language.LISTS):
        items = tuple(names.split())
        entries.append(Entry(category, f"{items[0]}, {items[1]} and {items[2]}", items=items))
    return tuple(entries)


@cache
def opposites() -> tuple[Entry, ...]:
    """Words and their opposites."""
    rows = read_table(facts_language.OPPOSITES)
    return tuple(Entry(row[0], row[1], translated=row[2:]) for row in rows)


@cache
def pairs(text: str) -> tuple[Entry, ...]:
    """Entries of a table of two columns: subject and bare answer."""
    return tuple(Entry(subject, short) for subject, short in read_table(text))


@cache
def materials() -> tuple[Entry, ...]:
    """Things and what they are made of."""
    return tuple(Entry(thing.split()[-1], short, thing) for thing, short in read_table(facts_nature.MATERIALS))


@cache
def science() -> tuple[Entry, ...]:
    """Whole questions with whole answers."""
    return tuple(Entry(question, short, answer) for question, answer, short in read_table(facts_language.SCIENCE))


def draw_sum(rng: random.Random, split: Split) -> Entry:
    """Draw a sum, a difference or a product of small numbers."""
    while True:
        left, right = rng.randint(2, 20), rng.randint(2, 12)
        name, result = rng.choice((("plus", left + right), ("minus", left - right), ("times", left * right)))
        if result > 0 and in_split(f"{left} {name} {right}", split):
            return Entry(f"{left} {name} {right}", str(result), translated=(str(result),) * 3)


def draw_double(rng: random.Random, split: Split) -> Entry:
    """Draw a number and its double."""
    number = rng.choice([number for number in range(2, 60) if in_split(str(number), split)])
    return Entry(str(number), str(2 * number), str(number), translated=(str(2 * number),) * 3)


def draw_comparison(rng: random.Random, split: Split) -> Entry:
    """Draw two numbers, the larger of which is asked for."""
    while True:
        left, right = rng.sample(range(2, 100), 2)
        larger = str(max(left, right))
        if in_split(f"{left} or {right}", split):
            return Entry(f"{left} or {right}", larger, str(min(left, right)), translated=(larger,) * 3)


def draw_letter(rng: random.Random, split: Split, index: int) -> Entry:
    """Draw a word and its first (index 0) or last (index -1) letter."""
    word = rng.choice((draw_noun, draw_name))(rng, split)
    letter = word[index].upper()
    return Entry(word, letter, word, translated=(letter,) * 3)


def draw_plural(rng: random.Random, split: Split) -> Entry:
    """Draw a noun and its plural, every other one irregular."""
    if rng.random() < 0.5:
        return draw_entry(rng, split, pairs(facts_language.PLURALS))
    entry = draw_entry(rng, split, tuple(entry for entry in members() if entry.other != entry.subject))
    return Entry(entry.subject, pluralize(entry.subject))
