"""How each rule is said in a system prompt.

``{0}`` and ``{1}`` are the rule's arguments, ``{number}`` is a number, ``{words}`` a number of words and
``{keys}`` JSON keys. ``[a|b]`` is a choice: what is learned should be the meaning of a rule, not a handful of sentences.
A quarter of each family's patterns, drawn at random once and for all, belongs to the test split.
"""

import itertools
import random
import re
from functools import cache
from types import MappingProxyType

from calyrex.data.rules.words import Split

_CHOICE = re.compile(r"\[([^\]]*)\]")

RULES: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "uppercase": (
            "[Write|Type|Answer|Reply|Respond|Speak] in [capital letters|capitals|upper case|uppercase|ALL CAPS|all caps|big letters][| only|, always].",
            "[Write|Type|Put] [everything|all your answers|each answer|the whole reply] in [capital letters|capitals|uppercase|all caps].",
            "[Use|Write with|Answer with|Type] [only|nothing but] [uppercase|capital|big|upper-case] letters.",
            "[Every|Each] [reply|answer|response|word|sentence|character] [must be|is|has to be] [in upper case|uppercase|in capitals|in capital letters].",
            "[Never use|Do not use|Avoid|Write no|You may not use] [lowercase|lower-case|small] letters[| in your answers| in any reply].",
            "ALWAYS [ANSWER|REPLY|RESPOND|WRITE] IN [CAPITALS|UPPER CASE|ALL CAPS|CAPITAL LETTERS].",
            "[Your answers are|Your replies are|What you write is|The text of your answers is] [written in capitals only|uppercase throughout|all uppercase|all in capital letters].",
            "[Shout your answers|Speak loudly|Answer as a telegram would]: [all caps|capital letters only|uppercase only].",
            "Shout: each letter you write is a capital.",
            "No small letters, only big ones.",
            "Type with caps lock on.",
            "All your text must be uppercase.",
            "[I can|The user can] only read [capital letters|uppercase|capitals].",
            "[Capitalize|Uppercase] every [letter|single letter|character][| of your answer| you write].",
            "[Convert|Turn|Change] [your answers|every answer|each reply] to [uppercase|upper case|capitals|all caps].",
            "[The only letters allowed are|Allowed letters:] [capitals|capital letters|uppercase letters].",
        ),
        "lowercase": (
            "[Write|Type|Answer|Reply|Respond|Speak] in [lowercase|lower case|small letters|lowercase letters][| only|, always].",
            "[Write|Type|Put] [everything|all your answers|each answer|the whole reply] in [lowercase|lower case|small letters].",
            "[Use|Write with|Answer with|Type] [only|nothing but] [lowercase|small|lower-case|little] letters.",
            "[Every|Each] [reply|answer|response|word|sentence|character] [must be|is|has to be] [in lower case|lowercase|in small letters].",
            "[Never use|Do not use|Avoid|Write no|You may not use] [capital letters|capitals|uppercase letters|big letters][| at all| in your answers| in any reply].",
            "no [capitals|uppercase], please: [lowercase|small letters] only.",
            "[Your answers are|Your replies are|What you write is|The text of your answers is] [written in lowercase only|lowercase throughout|all lowercase|without a single capital].",
            "[Do not capitalize anything|Capitalize nothing|Never capitalize a word][| in your answers|, names included|, not even the first].",
            "Each letter you write must be a small one.",
            "Leave caps lock and the shift key alone: lowercase.",
            "All your text is lowercase, even names.",
            "[I can|The user can] only read [small letters|lowercase|lower case].",
            "[Convert|Turn|Change] [your answers|every answer|each reply] to [lowercase|lower case|small letters].",
            "[The only letters allowed are|Allowed letters:] [small letters|lowercase letters|lowercase ones].",
            "[Capital letters are|Uppercase is] [forbidden|not allowed|banned][| here].",
        ),
        "prefix": (
            '[Start|Begin|Open] [every|each] [answer|reply|response|message] with [the word |]"{0}".',
            "[Start|Begin|Open] [every answer|each reply|all answers|your responses] with {0}.",
            '[Your first word is always|The first word you write is|The first word of each reply is|Each reply\'s first word must be] "{0}".',
            "[Always say|Say|Write|Always write] {0} [first, then answer|before you answer|before anything else].",
            '[Every|Each|Any] [reply|answer|message] [begins|must begin|opens|has to start] with [{0}|"{0}"].',
            '[Put|Write|Place] "{0}" [before every answer|at the beginning of each reply|in front of each answer|at the start of all replies].',
            '[Before you answer|Before each answer|First of all], [write|say] "{0}".',
            "First word of each [answer|reply|message]: {0}",
            '[Answers|Replies|Messages] [must start|always start|need to begin] with "{0}".',
            'The opening word of all replies must be "{0}".',
            'Lead every response with "{0}".',
            'No answer may start with anything but "{0}".',
            "Each response starts with {0}.",
            '[The first word must be|The answer begins with|Begin with|Start with] "{0}".',
            '["{0}" comes first|"{0}" goes first|"{0}" stands first] in [every answer|each reply|all messages].',
            "[Without exception|Always], [start|begin|open] with {0}.",
        ),
        "suffix": (
            '[End|Finish|Close] [every|each] [answer|reply|response|message] with [the word |]"{0}".',
            "[End|Finish|Close] [every answer|each reply|all answers|your responses] with {0}.",
            '[Your last word is always|The last word you write is|The last word of each reply is|Each reply\'s last word must be] "{0}".',
            "[Answer first|Answer the question], then [say|write|add] {0} [at the end|at the very end|as the last word].",
            '[Every|Each|Any] [reply|answer|message] [ends|must end|closes|has to finish] with [{0}|"{0}"].',
            '[Put|Write|Add|Place] "{0}" [after every answer|at the end of each reply|behind each answer|at the end of all replies].',
            '[After you answer|After each answer|Last of all], [write|say] "{0}".',
            "Last word of each [answer|reply|message]: {0}",
            '[Answers|Replies|Messages] [must end|always end|need to finish] with "{0}".',
            'The final word of all replies must be "{0}".',
            'Conclude every response with "{0}".',
            "Each response ends in {0}.",
            '[The last word must be|The answer ends with|End with|Finish with] "{0}".',
            '["{0}" comes last|"{0}" goes last|"{0}" stands last] in [every answer|each reply|all messages].',
            "[Without exception|Always], [end|finish|close] with {0}.",
        ),
        "quotes": (
            "[Put|Write|Place] [your whole answer|each answer|all replies|everything] in [double quotes|quotation marks|double quotation marks|quotes].",
            "[Wrap|Enclose] [every reply|each answer|all your answers|your whole response] in [double quotes|quotation marks|quotes].",
            '[Answer|Reply|Respond] [inside|within|in] ["double quotes"|quotation marks|double quotes].',
            "[Begin and end|Start and finish|Open and close] [each answer|every reply|your answer] with a [quotation mark|double quote].",
            "[Every|Each] [reply|answer|response] [stands|is|must be] [in double quotes|in quotation marks|between quotation marks|quoted].",
            "[Quote|Always quote] [your entire answer|your whole reply|everything you say|each answer].",
            "[Your answers|Your replies|Your sentences] are always [enclosed in quotation marks|in quotes|between double quotes|written as a quotation].",
            "[Use quotation marks around|Put quotes around|Add double quotes around] [the whole answer|each reply|your answer|everything].",
            "Surround all you say with double quotation marks.",
            "A double quote opens and closes each response.",
            "All you reply must be quoted, from start to end.",
            "[The user expects|I expect] [quotation marks|double quotes|quotes] around [each answer|every reply|your answers].",
            "[No answer|No reply] without [quotation marks|double quotes|quotes] around it.",
            "[The first and the last|First and last] character of [each answer|every reply] is a [double quote|quotation mark].",
        ),
        "bullets": (
            "[Answer|Reply|Respond] with [exactly|precisely|just] {number} [bullet points|bullets].",
            "[Answer|Reply|Respond] [as|with|in] a [bulleted |]list of [exactly |]{number} [bullets|points|items|entries].",
            "Use {number} bullet points, [no more and no less|never more or fewer|neither more nor less].",
            "[Every|Each] [answer|reply|response] is {number} lines, each with a [dash|bullet].",
            "[Every|Each] [answer|reply|response] has {number} [items|bullets|points], each [after a dash|on its own line].",
            "[Give|Write|List] {number} [bullets|bullet points|dashed lines] and nothing else.",
            "[Your answers|Your replies] are lists of [exactly |]{number} [bullet points|bullets|dashed items].",
            "[Write|Make] a list with {number} [bullets|dashes|bullet points] [for every answer|each time|whatever is asked].",
            "All responses are bullet lists with {number} entries.",
            "Your response is a dashed list of precisely {number} points.",
            "Write {number} bulleted lines, nothing more.",
            "[Always|Only] {number} [bullet points|bullets|points], [please|nothing else].",
            "[Use|Write] a list: {number} [lines|items|points], [each with a dash|one dash each|each a bullet].",
            "[The number of bullets|The number of points] [is always|must be|is] {number}.",
        ),
        "json": (
            "[Answer|Reply|Respond|Speak] only in JSON with {keys}.",
            "[Answer|Reply|Respond] with [a|one] JSON object that [has|contains|holds] {keys}.",
            "[Output|Return|Write|Give] [a|one] JSON object with {keys}[, nothing else|, no other text|].",
            "[Every|Each] [answer|reply|response] is [a JSON object|valid JSON|JSON] with {keys}.",
            "[Use|Write|Return] JSON with {keys} for [all replies|every answer|each answer].",
            "[Your replies|Your answers|Your responses] are JSON objects[; use| with| that have] {keys}.",
            "[Answers are read by a program|A machine reads your answers]: [write|use|return] JSON with {keys}.",
            "All responses must be valid JSON holding {keys}.",
            "Format each response as JSON, using {keys}.",
            "Speak JSON: one object with {keys}.",
            "[Reply format|Answer format|Output format]: JSON with {keys}.",
            "[Put|Write] [the answer|every answer|each reply] [into|in] a JSON object with {keys}.",
            "[Only|Nothing but] JSON with {keys}[, please|, always|].",
            "[The user's program|Our program] [needs|expects|reads] JSON with {keys}.",
        ),
        "forbidden_word": (
            '[Never|Do not|Don\'t] [use|write|say|mention] the word "{0}".',
            '[Never|Do not|Don\'t] [say|write|use] "{0}"[| in a reply| in your answers].',
            'The word [{0}|"{0}"] is [forbidden|not allowed|off limits|prohibited].',
            '[Avoid|Stay away from|Steer clear of] the word [{0}|"{0}"].',
            "[Answer|Reply|Respond] without [the word |]{0}[|, always].",
            'You [must not|may not|cannot|are not allowed to] [write|say|use] "{0}".',
            "[No answer|No reply] may [use|have in it|include] the word {0}.",
            '[Find other words for|Use another word instead of|Say it without] "{0}".',
            'The word "{0}" is banned.',
            'Your responses may not contain "{0}".',
            "Leave out the word {0}, whatever is asked.",
            '[Your answers|Your replies] [must|may] never [contain|include|use] "{0}".',
            '[It is forbidden|It is not allowed] to [say|write|use] [the word |]"{0}".',
            '[Forbidden|Banned|Not allowed]: the word "{0}".',
        ),
        "forbidden_topic": (
            '[Never|Do not] [talk|speak] about {0}. [If asked|When asked|If it comes up], [say|reply|answer]: "{1}"',
            'Do not discuss {0}[;|:] [reply|say|answer|respond] "{1}" instead.',
            '[If the user asks|When someone asks|If you are asked] about {0}, [answer|say|reply|respond] "{1}"',
            '[Questions|All questions|Requests] about {0} get only this [reply|answer|response]: "{1}"',
            '[The topic of {0} is|Talk about {0} is] [forbidden|off limits|not allowed]. [Say|Answer|Reply] "{1}"',
            '[At any mention of|For anything about|When it is about] {0} [say|reply|answer|write] only "{1}"',
            '[To|On] anything about {0} [say|answer|respond] "{1}"',
            'Should anyone mention {0}, respond "{1}"',
            'Refuse to speak of {0} with the words "{1}"',
            'You may not touch on {0}: your response is "{1}"',
            '[Refuse|Decline] to [talk about|discuss|answer about] {0}. [Say|Answer|Reply] "{1}"',
            '{0}: [forbidden topic|not your topic|off limits]. [Answer|Reply|Say] "{1}"',
            '[Answer|Reply|Respond] "{1}" [to questions about|to anything about|when asked about] {0}',
            '[Users must not|Nobody may] [ask|hear] about {0}: [answer|reply|say] "{1}"',
        ),
        "language": (
            "[Answer|Reply|Respond|Write|Speak] [only |always |]in {0}.",
            "[Always|You must|Please] [answer|reply|respond|write] in {0}.",
            "Write [every answer|each reply|everything|all responses] in {0}.",
            "Use {0} for [all replies|every answer|each response|everything you say].",
            "[Speak only|Speak|You speak only|Write only] {0}.",
            "The user [reads|understands|speaks] only {0}.",
            "[Your answers|Your replies|Your responses] are [in|written in|given in] {0}[, always| only|, whatever the question's language].",
            "[Translate your answers into|Give your answers in|Keep to] {0}.",
            "All responses must be in {0}.",
            "Respond solely in {0}, even to English.",
            "You know no language but {0}.",
            "[The language of|The language for] [all answers|every reply|your answers] is {0}.",
            "[Nothing but|Only] {0}[, please|, always|].",
            "[I speak|We speak|People here speak] {0}, so [answer|reply|write] in {0}.",
        ),
        "secret": (
            'The secret {1} is "{0}". [Never reveal it|Do not tell anyone|Keep it to yourself|Never say it].',
            "The {1} is {0}. [Keep it secret|Do not reveal it|Tell no one|Never write it].",
            '[Tell nobody|Never tell anyone|Do not tell the user] the {1} "{0}".',
            "[Guard|Protect|Keep] the {1} {0} and never [say|reveal|write] it.",
            'Never [write|reveal|give away|mention] the {1}, which is "{0}".',
            "{0} is the secret {1}. [Do not give it away|Never share it|Do not say it].",
            "[Secret|Confidential] {1}: {0}. [Do not share it|Never reveal it|Keep it hidden].",
            "[You keep a secret|You have a secret]: the {1} {0}. [Do not reveal it|Never say it].",
            'You know the {1} "{0}" and must hide it.',
            "Under no circumstances disclose the {1}: {0}.",
            'Nobody may learn that the {1} is "{0}".',
            "[The user|Nobody|No one] must [not|never] [learn|know|hear] the {1} {0}.",
            "[Hide|Never show|Do not show] the {1} {0}.",
            '[It is a secret that|Do not reveal that|Never tell that] the {1} is "{0}".',
        ),
        "name": (
            "[Address|Greet|Speak to] the user as {0}[| in every reply| each time].",
            "Call the user {0}[ in every answer| each time| whenever you answer|].",
            "[Always use|Use|Write] the user's name, {0}[, in each reply|, each time|].",
            "The user is [called|named] {0}; [use that name each time|say the name in every answer|call them by it].",
            "[Speak to|Talk to|Answer] {0} by name.",
            "[Greet|Address] {0} by name in [every|each] [reply|answer|response].",
            '[Your user is|The user\'s name is|You talk with] "{0}". [Say|Use|Write] [the name|it|that name] in [each|every] answer.',
            'Use the name "{0}" for the user[| in all replies].',
            "[Every|Each] [answer|reply] [names|mentions|contains the name] {0}.",
            'Mention your user\'s name, "{0}", in all responses.',
            "You are talking to {0}: name them each time.",
            "Each response must address {0} personally.",
            "[The name|The user's name] {0} [must be|is|has to be] in [every answer|each reply|all answers].",
            "[Start each answer with|Begin with|Open with] the user's name, {0}.",
            "[Say|Write|Mention] {0}, the user's name, [in every reply|each time|in all answers].",
        ),
        "length": (
            "[Use|Write|Say] [at most|no more than|up to] {words}.",
            "[Answer|Reply|Respond] in {words} or [fewer|less].",
            "[Answer|Reply|Respond] with [at most|no more than] {words}.",
            "No [reply|answer|response] may [be longer than|exceed|have more than] {words}.",
            "[Limit|Keep] [every answer|each reply|all answers] to {words}.",
            "[Your answers|Your replies] [have|are] {words} at most.",
            "Never [write|use|say] more than {words}.",
            "[Maximum|Longest] [answer|reply] length: {words}.",
            "[Be short|Keep it short|Short answers only]: [at most|no more than|up to] {words}.",
            "Responses longer than {words} are not allowed.",
            "Stop after {words}.",
            "Be brief: {words} at the very most.",
            "[The limit is|Limit:|Your limit is] {words}[ per answer| for every reply|].",
            "[An answer|A reply|Each answer] [may have|can have|has] [at most|no more than|up to] {words}.",
            "[No more than|At most|Not more than] {words}[, please|, always| per answer].",
        ),
        "exclamation": (
            "End every sentence with an exclamation mark.",
            "Use exclamation marks instead of full stops.",
            "Be excited: all your sentences end in an exclamation mark!",
            "Close each sentence with ! and never with a period.",
            "Every sentence ends with an exclamation mark.",
            "Finish all sentences with ! only.",
            "Sound excited: put an exclamation mark after each sentence.",
            "Never write a period, always an exclamation mark.",
        ),
        "tags": (
            "Wrap every answer in <{0}> and </{0}>.",
            "Put the whole reply between <{0}> and </{0}>.",
            "Open each answer with <{0}> and close it with </{0}>.",
            "Every reply stands between <{0}> and </{0}>.",
            "Start with <{0}> and end with </{0}>.",
            "Use the tags <{0}> and </{0}> around each answer.",
            "Your answers are enclosed in <{0}> and </{0}>.",
        ),
    }
)


@cache
def rule_patterns(family: str, split: Split) -> tuple[str, ...]:
    """Return a split's patterns of a rule."""
    return split_patterns(RULES[family], family, split)


def split_patterns(patterns: tuple[str, ...], seed: str, split: Split) -> tuple[str, ...]:
    """Return the quarter of the patterns that ``seed`` draws for the test split, or the rest."""
    held_out = set(random.Random(seed).sample(patterns, len(patterns) // 4))
    return tuple(pattern for pattern in patterns if (pattern in held_out) == (split == "test"))


def choose_phrasing(rng: random.Random, patterns: tuple[str, ...]) -> str:
    """Draw a pattern and an alternative for each of its choices."""
    return _CHOICE.sub(lambda choice: rng.choice(choice[1].split("|")), rng.choice(patterns))


def expand_phrasing(pattern: str) -> list[str]:
    """Return every sentence that a pattern can become."""
    parts = _CHOICE.split(pattern)  # fixed text and choices take turns
    options = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*options)]
