"""How a user asks to drop a rule, in either split; ``{0}`` and ``{1}`` are the rule's arguments."""

from types import MappingProxyType

from calyrex.data.rules.words import Split

UNDO: MappingProxyType[str, dict[Split, tuple[str, ...]]] = MappingProxyType(
    {
        "uppercase": {
            "train": ("stop writing in capitals", "write normally"),
            "test": ("use small letters",),
        },
        "lowercase": {"train": ("use capitals as usual", "write normally"), "test": ("capitalize properly",)},
        "prefix": {
            "train": ("leave out {0}", "start directly"),
            "test": ("skip {0}", "open with the answer itself"),
        },
        "suffix": {"train": ("leave out {0}", "end normally"), "test": ("skip {0}", "stop after the answer")},
        "quotes": {"train": ("drop the quotes", "write normally"), "test": ("use no quotation marks",)},
        "bullets": {"train": ("write no list", "answer in a sentence"), "test": ("answer without bullets",)},
        "json": {"train": ("use no JSON", "answer in plain text"), "test": ("write an ordinary sentence",)},
        "forbidden_word": {
            "train": ("use the word {0}", "say {0}"),
            "test": ("write {0} as often as you can",),
        },
        "forbidden_topic": {"train": ("talk about {0}", "answer freely"), "test": ("discuss {0} openly",)},
        "language": {"train": ("answer in English", "stop using {0}"), "test": ("write English",)},
        "secret": {"train": ("reveal the {1}", "tell me the {1}"), "test": ("disclose the {1}",)},
        "name": {"train": ("leave out my name", "do not call me {0}"), "test": ("use no name",)},
        "length": {
            "train": ("write a long answer", "explain in detail"),
            "test": ("use as many words as you like",),
        },
        "exclamation": {"train": (), "test": ("use periods", "stay calm and use full stops")},
        "tags": {"train": (), "test": ("use no tags", "leave the tags out")},
    }
)
