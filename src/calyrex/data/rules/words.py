"""The words and names that rules are about, each of which belongs to one split for good."""

import random
import re
import zlib
from functools import cache
from types import MappingProxyType
from typing import Literal

from calyrex.data.rules import facts_language, facts_nature, facts_world

Split = Literal["train", "test"]

_PHRASE_SHARE: MappingProxyType[Split, float] = MappingProxyType({"train": 0.4, "test": 0.2})
"""How often an answer opens or closes with several words: copying is learned word by word, and needs many."""

NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def read_words(text: str) -> tuple[str, ...]:
    """Split a text into words."""
    return tuple(text.split())


_NOUNS = read_words(
    """
acorn alcove almond amber anchor anvil apron arcade archer arrow artichoke aspen atlas attic autumn avenue
awning badge bagel bakery ballad bamboo banjo banner barley barrel basil basket beacon beaver bellows
bicycle birch biscuit blanket blossom bonfire bottle boulder bouquet bracket branch breeze bridge bronze
bucket buckle buffalo bugle bundle burrow butter button cabin cactus candle canyon caramel caravan carpet
carrot castle cauldron cavern cedar cellar chalk chapel charcoal cherry chestnut chimney cider cinnamon
circus clarinet clover cobalt coconut comet compass copper coral cotton cottage cradle crater crayon
cricket crimson crystal cupboard curtain cushion cypress daffodil dagger dahlia daisy dandelion desert
diamond dolphin domino dragon drizzle drummer dustpan ember emerald engine envelope evening falcon feather
fennel ferret fiddle fjord flannel flicker flute fog forest fortress fossil fountain foxglove freckle
frigate galaxy garden garlic garnet gazelle geyser ginger glacier glimmer goblet granite gravel griffin
guitar hammock harbor harvest hazel heather hedgehog helmet heron hickory honey horizon hornet hyacinth
iceberg igloo indigo ink iris island ivory ivy jackal jaguar jasmine jelly jigsaw jungle juniper kayak
kettle kingfisher kite kitten ladder lagoon lantern larch lavender leaf lemon lentil lichen lighthouse
lilac lime linen lobster locket lotus lumber lupine lute lynx magnet magnolia mango mantle maple marble
marigold marmalade meadow melody melon meteor mineral mint mirror mitten monsoon moss mountain mulberry
muslin mustard napkin nebula nectar needle nettle nickel nimbus nougat nutmeg oasis oatmeal obelisk ocean
olive onyx opal orchard orchid otter oven oyster paddle pagoda palette panther papaya paprika parade
parchment parrot parsley pasture pavilion peach pebble pelican pencil pepper petal piano pickle pigeon
pillow pineapple pioneer pistachio plateau plum pocket pollen pomegranate poplar poppy porcelain portal
prairie pretzel prism pudding puffin pumpkin puzzle pyramid quarry quartz quill quilt rabbit radish raft
rainbow raisin raspberry raven reef ribbon ridge river robin rocket rosemary ruby rudder saddle saffron
sail salmon sandal sapphire satchel scarlet schooner seashell sequoia shadow shamrock shovel silver
skylark sled slipper snowflake sonnet sparrow spinach spindle spiral spruce squash squirrel stable
starfish steeple stork stream summit sundial sunflower swallow syrup tambourine tangerine teapot tempest
thimble thistle thunder tiger timber toffee topaz torch tortoise tractor treasure trellis trumpet tulip
tundra tunnel turnip turquoise tweed twilight umbrella valley vanilla velvet vessel village vineyard
violet violin volcano waffle walnut walrus waterfall weasel whisker whistle willow window winter wizard
wombat yarrow yogurt zebra zeppelin zipper
    """
)

_OPENERS = read_words(
    """
absolutely agreed ahoy alas aloha amazing answer aye bravo certainly cheers ciao clearly confirmed copy
correct dear definitely done eureka exactly farewell fine friend gladly goodbye greetings hello hooray
howdy indeed kindly listen maybe namaste naturally noted okay onward over peace please precisely presto
ready really regards reply roger salute servus shalom sincerely sir splendid sure surely thanks true truly
understood voila welcome well wonderful yes yo
    """
)

_NAMES = read_words(
    """
Aaliyah Abdul Abigail Adam Adele Agatha Ahmed Aiko Ailsa Alan Albert Alejandra Alice Alina Amara Amelia
Amir Amina Anders Andrea Angus Anika Anton Anya Arjun Astrid Audrey Ava Axel Aylin Barbara Beatrice
Benedict Benjamin Bianca Bjorn Boris Bridget Bruno Camila Carlos Carmen Caroline Cecilia Cedric Charlotte
Chiara Chidi Chloe Clara Clement Cyrus Dalia Daniel Daphne David Deepak Delia Diego Dimitri Dina Dominic
Dora Edgar Edith Edward Ekaterina Elena Elias Eliza Ella Emeka Emil Emma Enzo Erik Esther Ethan Eva Fatima
Felix Fernando Fiona Florence Frank Freya Gabriel Gemma George Gerald Giulia Gloria Grace Greta Gustav
Hana Hannah Harold Harriet Hassan Hector Heidi Helen Henrik Hiroshi Hugo Ibrahim Ida Ignacio Igor Imani
Ingrid Irene Isaac Isabel Ismail Ivan Jamal Jasper Javier Jerome Joan Johanna Jonas Joseph Julia Junko
Kaito Karim Katya Kenji Kerstin Kofi Kwame Lars Latifa Laura Leila Leo Leonard Liam Lila Linus Lorenzo
Louise Lucas Lucia Ludwig Luis Lydia Mabel Magnus Malik Manuel Margaret Mariam Marisol Marta Martin
Matilda Maurice Mei Mercy Michael Miguel Milan Mina Miriam Mohammed Monica Nadia Naomi Natasha Nathan Nia
Nigel Nils Nina Noah Noor Nora Octavia Olga Oliver Olivia Omar Oscar Otto Pablo Paloma Patrick Paula Pedro
Penelope Percy Peter Petra Philip Priya Quentin Rachel Rafael Raj Ramona Rashid Ravi Rebecca Reggie Renata
Ricardo Rita Robert Rohan Rosa Rowan Rudolf Ruth Salma Samir Samuel Sandra Santiago Sara Saskia Sebastian
Selma Serena Sergei Shira Sigrid Silvia Simon Sofia Solomon Soren Stella Stephen Sunita Svetlana Sven
Sylvia Tadeo Takeshi Tamara Tariq Tatiana Teresa Theodore Thomas Tobias Trevor Ursula Valentina Vera
Victor Vikram Vincent Viola Walter Wanda Wendy Wilfred William Winston Xavier Ximena Yara Yasmin Yolanda
Yuki Yusuf Zainab Zelda Zoe Zora
    """
)

_ONSETS = read_words("b br c ch cl d dr f fl g gl gr h j k kl kr l m n p pl pr qu r s sh sk sl st t th tr v w x y z")
_VOWELS = read_words("a a e e i i o o u ai ea io oo")
_ENDINGS = read_words("b ck d l ll m n nd ng nk p r rk rn s sh ss st t th v x z")


def in_split(word: str, split: Split) -> bool:
    """Tell whether a word belongs to a split; each word, in any case, belongs to exactly one."""
    is_test = zlib.crc32(word.casefold().encode()) % 4 == 0
    return is_test == (split == "test")


def draw_noun(rng: random.Random, split: Split) -> str:
    """Draw a plain English noun in lower case."""
    return _draw(rng, _NOUNS, split)


def draw_name(rng: random.Random, split: Split) -> str:
    """Draw a first name, one in five of them invented."""
    if rng.random() < 0.2:
        return draw_invented(rng, split).capitalize()
    return _draw(rng, _NAMES, split)


def draw_word(rng: random.Random, split: Split) -> str:
    """Draw what an answer may have to open or close with: a word, a name, an invention or a few words."""
    chance = rng.random()
    if chance < _PHRASE_SHARE[split]:
        words = [draw_common(rng, split) for _ in range(rng.randint(2, 4))]
        return rng.choice((" ".join(words), " ".join(words).capitalize(), " ".join(words).title()))
    if chance < 0.6:
        word = draw_invented(rng, split)
    elif chance < 0.65:
        word = _draw(rng, _OPENERS, split)
    elif chance < 0.75:
        return draw_name(rng, split)
    else:
        word = draw_common(rng, split)
    return rng.choice((word, word, word.capitalize(), word.capitalize(), word.upper()))


def draw_common(rng: random.Random, split: Split) -> str:
    """Draw any word that the fact tables are written with, in lower case: what is copied must be of many kinds."""
    return _draw(rng, _common_words(), split)


@cache
def _common_words() -> tuple[str, ...]:
    tables = (
        text
        for module in (facts_language, facts_nature, facts_world)
        for name, text in vars(module).items()
        if name.isupper()
    )
    # Without plurals: the plural of a test word can belong to the training split.
    words = {word for text in tables for word in re.findall(r"\b[a-z]{3,}[a-rt-z]\b", text)}
    return tuple(sorted(words | set(_NOUNS)))


def draw_secret(rng: random.Random, split: Split) -> str:
    """Draw a word of five letters or more, long enough to be recognised when spelled or reversed."""
    while True:
        word = draw_invented(rng, split) if rng.random() < 0.3 else draw_noun(rng, split)
        if len(word) >= 5:
            return rng.choice((word, word, word.capitalize(), word.upper()))


def draw_invented(rng: random.Random, split: Split) -> str:
    """Draw a pronounceable word that no dictionary has, in lower case."""
    while True:
        first, second = (rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(2))
        word = first + second + rng.choice(_ENDINGS)
        if len(word) >= 5 and in_split(word, split):
            return word


def _draw(rng: random.Random, words: tuple[str, ...], split: Split) -> str:
    while True:
        word = rng.choice(words)
        if in_split(word, split):
            return word
