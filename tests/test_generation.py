"""Generation with the system keys in the cache gives exactly what the uncached forward gives."""

from collections import Counter

import pytest
import torch
from peft import get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import CompileConfig, DynamicCache
from transformers.cache_utils import DynamicLayer

from calyrex.cache import SystemCacheLayer
from calyrex.config import CalyrexConfig
from calyrex.context import Request
from calyrex.generation import RoomyLayer, answer_chats
from calyrex.span import encode_chat
from chat_tokenizers import chatml
from tiny import ARCHITECTURES, batch, tiny_anchored, tiny_base, train_blocks

NEW = 8


def greedy_without_cache(model, input_ids, system_mask, attention_mask=None):
    """Decode one token at a time, each from a full forward."""
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    for _ in range(NEW):
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        system = torch.nn.functional.pad(system_mask, (0, input_ids.shape[1] - system_mask.shape[1]))
        logits = model(
            input_ids, attention_mask=mask, position_ids=positions, system_mask=system, use_cache=False
        ).logits
        input_ids = torch.cat([input_ids, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
        mask = torch.nn.functional.pad(mask, (0, 1), value=1)
    return input_ids


def generate(model, input_ids, system_mask, **options):
    return model.generate(
        input_ids,
        system_mask=system_mask,
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        **{"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(input_ids), **options},
    )


@pytest.fixture
def anchored():
    model = tiny_anchored()
    model.generation_config.eos_token_id = None
    return model


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_equals_the_uncached_forward(architecture):
    input_ids, system_mask = batch()
    model = tiny_anchored(architecture)

    expected = greedy_without_cache(model, input_ids, system_mask)

    assert torch.equal(generate(model, input_ids, system_mask, eos_token_id=None), expected)
    assert not torch.equal(generate(model, input_ids, system_mask, scale=0.0, eos_token_id=None), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"cache_implementation": "static"},
        {"cache_implementation": "dynamic"},
        {"prefill_chunk_size": 4},
        {"prompt_lookup_num_tokens": 3, "rows": 1},
        {"num_beams": 1, "use_cache": False},
    ],
    ids=lambda options: next(iter(options)),
)
def test_every_way_of_greedy_decoding_gives_the_same_tokens(anchored, options):
    input_ids, system_mask = batch(options.pop("rows", 2))
    expected = greedy_without_cache(anchored, input_ids, system_mask)

    assert torch.equal(generate(anchored, input_ids, system_mask, **options), expected)


def test_assisted_decoding_gives_the_same_tokens(anchored):
    input_ids, system_mask = batch(1)
    assistant = tiny_base(seed=5)
    expected = greedy_without_cache(anchored, input_ids, system_mask)

    assert torch.equal(generate(anchored, input_ids, system_mask, assistant_model=assistant), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3},
        {"num_beams": 4, "num_return_sequences": 3},
        {"do_sample": True, "num_return_sequences": 3, "top_k": 0},
        {"do_sample": True, "num_beams": 2, "top_k": 0},
    ],
    ids=str,
)
def test_beams_and_samples_are_the_same_with_and_without_cache(anchored, options):
    input_ids, system_mask = batch()

    torch.manual_seed(0)
    cached = generate(anchored, input_ids, system_mask, **options)
    torch.manual_seed(0)
    uncached = generate(anchored, input_ids, system_mask, use_cache=False, **options)

    assert torch.equal(cached, uncached)


def test_left_padding_changes_nothing(anchored):
    input_ids, system_mask = batch(1)
    padded = torch.nn.functional.pad(input_ids, (3, 0))
    attention_mask = torch.nn.functional.pad(torch.ones_like(input_ids), (3, 0))

    plain = generate(anchored, input_ids, system_mask)
    from_padded = generate(
        anchored, padded, torch.nn.functional.pad(system_mask, (3, 0)), attention_mask=attention_mask
    )

    assert torch.equal(from_padded[:, 3:], plain)


def test_a_second_turn_on_the_same_cache_equals_a_fresh_start(anchored):
    input_ids, system_mask = batch(1)
    cache = DynamicCache(config=anchored.config)
    first = generate(anchored, input_ids, system_mask, cache=cache)
    second_turn = torch.cat([first, torch.tensor([[5, 6, 7]])], dim=1)

    continued = generate(anchored, second_turn, system_mask, cache=cache)
    fresh = generate(anchored, second_turn, torch.nn.functional.pad(system_mask, (0, NEW + 3)))

    assert torch.equal(continued, fresh)


def test_a_second_turn_of_rows_that_ended_apart_keeps_the_rules_of_each(anchored):
    """Row 1 ended two tokens earlier: its padding is masked, and positions begin anew behind it for no document."""
    input_ids, system_mask = batch()
    cache = DynamicCache(config=anchored.config)
    anchored(input_ids, system_mask=system_mask, cache=cache)
    turn = torch.tensor([[9, 8, 7, 6, 5], [0, 0, 7, 6, 5]])
    attention_mask = torch.ones(2, 17, dtype=torch.int64)
    attention_mask[1, 12:14] = 0
    whole = torch.cat([input_ids, turn], dim=1)

    together = generate(anchored, whole, system_mask, cache=cache, attention_mask=attention_mask)
    alone = torch.cat([input_ids[1:], turn[1:, 2:]], dim=1)
    padded = torch.nn.functional.pad(system_mask[1:], (0, 3))

    assert torch.equal(together[1:, 17:], generate(anchored, alone, padded)[:, 15:])


@pytest.mark.parametrize("inference", [False, True])
def test_a_cache_can_be_reset_whatever_holds_its_tensors(anchored, inference):
    input_ids, system_mask = batch(1)
    cache = DynamicCache(config=anchored.config)
    with torch.inference_mode(inference):
        logits = anchored(input_ids, system_mask=system_mask, cache=cache).logits

    cache.reset()

    if not inference:
        logits.sum().backward()
    torch.testing.assert_close(anchored(input_ids, system_mask=system_mask, cache=cache).logits, logits)


def test_a_system_message_in_mid_conversation_is_heard_from_there_on(anchored):
    input_ids, system_mask = batch(1)
    cache = DynamicCache(config=anchored.config)
    anchored(input_ids, system_mask=system_mask, cache=cache)
    more, more_mask = torch.tensor([[9, 8, 7, 6, 5]]), torch.tensor([[False, True, True, False, False]])

    continued = anchored(more, system_mask=more_mask, cache=cache).logits
    whole = anchored(torch.cat([input_ids, more], dim=1), system_mask=torch.cat([system_mask, more_mask], dim=1)).logits

    torch.testing.assert_close(continued, whole[:, 12:], atol=1e-5, rtol=1e-4)


def test_the_cache_keeps_only_system_tokens_and_never_grows(anchored):
    input_ids, system_mask = batch(1)
    cache = DynamicCache(config=anchored.config)

    generate(anchored, input_ids, system_mask, cache=cache)

    own = [layer for layer in cache.layers if isinstance(layer, SystemCacheLayer)]
    assert [layer.keys.shape[2] for layer in own if layer.is_initialized] == [3, 3, 3]
    assert cache.get_seq_length() == 12 + NEW - 1


class Operations(TorchDispatchMode):
    """Counts each operation with the shapes of its tensors."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        shapes = tuple(tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor))
        self.counts[str(function), shapes] += 1
        return function(*args, **(kwargs or {}))


def operations_of_the_blocks(anchored, num_tokens):
    """Return what a decoded token costs beyond the base's own operations, as ``generate`` decodes it."""
    input_ids, system_mask = batch(1, tokens=num_tokens)
    counted = []
    for model in (anchored.get_base_model(), tiny_base()):
        cache = DynamicCache(config=anchored.config)
        with anchored.base_model.context.serve(Request(system_mask, spans_sequence=True)):
            model(input_ids, cache=cache)
            with Operations() as operations:
                model(input_ids[:, :1], cache=cache)
        counted.append(operations.counts)
    return counted[0] - counted[1]


def test_the_blocks_work_for_a_token_does_not_depend_on_the_length_of_the_conversation(anchored):
    short, long = operations_of_the_blocks(anchored, 12), operations_of_the_blocks(anchored, 120)

    assert short.total() > 3 * 10
    assert short == long


def test_decoding_with_a_static_cache_compiles_once_and_without_graph_breaks(anchored):
    input_ids, system_mask = batch()
    graphs = []

    def backend(graph, _inputs):  # a function, because generate copies its configuration
        graphs.append(graph)
        return graph.forward

    config = CompileConfig(fullgraph=True, backend=backend, mode=None)
    config._compile_all_devices = True
    expected = generate(anchored, input_ids, system_mask)

    compiled = generate(anchored, input_ids, system_mask, cache_implementation="static", compile_config=config)

    assert torch.equal(compiled, expected)
    assert len(graphs) == 1


def test_tokens_that_the_blocks_have_not_seen_are_not_passed_over(anchored):
    input_ids, system_mask = batch(1)
    cache = DynamicCache(config=anchored.config)
    anchored(input_ids, system_mask=system_mask, cache=cache)
    with anchored.disable_adapter():
        anchored(input_ids[:, :3], cache=cache)

    with pytest.raises(ValueError, match="holds tokens that the blocks have not seen"):
        anchored(input_ids[:, :1], cache=cache)


def test_a_prompt_read_token_by_token_gives_the_same_logits(anchored):
    input_ids, system_mask = batch(1)
    cache = DynamicCache(config=anchored.config)
    expected = anchored(input_ids, system_mask=system_mask).logits

    steps = [
        anchored(input_ids[:, t : t + 1], system_mask=system_mask[:, t : t + 1], cache=cache).logits for t in range(12)
    ]

    torch.testing.assert_close(torch.cat(steps, dim=1), expected, atol=1e-5, rtol=1e-4)


def test_cropping_forgets_generated_tokens_and_keeps_the_system_prompt(anchored):
    input_ids, system_mask = batch(1)
    cache = DynamicCache(config=anchored.config)
    expected = anchored(input_ids, system_mask=system_mask).logits

    anchored(input_ids, system_mask=system_mask, cache=cache)
    cache.crop(-4)
    again = anchored(input_ids[:, 8:], cache=cache, system_mask=system_mask[:, 8:]).logits

    torch.testing.assert_close(again, expected[:, 8:], atol=1e-5, rtol=1e-4)


def test_cropping_into_the_system_prompt_forgets_that_part(anchored):
    input_ids, system_mask = batch(1)
    cache = DynamicCache(config=anchored.config)
    short = system_mask.clone()
    short[:, 3:] = False
    expected = anchored(input_ids, system_mask=short).logits

    anchored(input_ids, system_mask=system_mask, cache=cache)
    cache.crop(-9)
    again = anchored(input_ids[:, 3:], cache=cache, system_mask=short[:, 3:]).logits

    torch.testing.assert_close(again, expected[:, 3:], atol=1e-5, rtol=1e-4)


def test_a_cache_filled_by_another_adapter_or_without_blocks_is_refused(anchored):
    input_ids, system_mask = batch(1)
    cache, bare = DynamicCache(config=anchored.config), DynamicCache(config=anchored.config)
    anchored(input_ids, system_mask=system_mask, cache=cache)
    with anchored.disable_adapter():
        anchored(input_ids, system_mask=system_mask, cache=bare)
    anchored.add_adapter("second", anchored.peft_config["default"])
    anchored.set_adapter("second")

    with pytest.raises(ValueError, match="as adapter 'default' reads it, but 'second' is active"):
        anchored(input_ids[:, :1], cache=cache)
    with pytest.raises(ValueError, match="holds tokens that the blocks have not seen"):
        anchored(input_ids[:, :1], cache=bare)


@pytest.mark.parametrize("num_tokens", [1, 2])
def test_a_cache_filled_by_an_adapter_on_other_layers_is_refused(num_tokens):
    input_ids, system_mask = batch(1)
    model = get_peft_model(tiny_base(), CalyrexConfig(placement=[2]))
    model.add_adapter("second", CalyrexConfig(placement=[3]))
    cache = DynamicCache(config=model.config)
    model(input_ids, system_mask=system_mask, cache=cache)
    model.set_adapter("second")

    with pytest.raises(ValueError, match="start a new cache"):
        model(input_ids[:, :num_tokens], cache=cache)


def test_guidance_and_masks_of_another_shape_are_refused(anchored):
    input_ids, system_mask = batch(1)

    with pytest.raises(ValueError, match="does not support guidance"):
        generate(anchored, input_ids, system_mask, guidance_scale=1.5)
    with pytest.raises(ValueError, match=r"shape of input_ids, \[1, 12\], got \[1, 5\]"):
        generate(anchored, input_ids, system_mask[:, :5])
    with pytest.raises(TypeError, match="one scale for all rows"):
        generate(anchored, input_ids, system_mask, scale=torch.ones(1))


def test_the_disabled_model_needs_no_mask(anchored):
    input_ids, _ = batch(1)
    expected = tiny_base()(inputs_embeds=tiny_base().get_input_embeddings()(input_ids)).logits

    with anchored.disable_adapter():
        logits = anchored(inputs_embeds=anchored.get_input_embeddings()(input_ids)).logits
        generated = generate(anchored, input_ids, None)

    assert torch.equal(logits, expected)
    assert generated.shape == (1, 12 + NEW)


def test_continuous_batching_is_refused(anchored):
    with pytest.raises(NotImplementedError, match="continuous batching"):
        anchored.generate_batch([[1, 2, 3]])
    with pytest.raises(NotImplementedError, match="continuous batching"):
        anchored.get_base_model()(torch.tensor([[1, 2]]), cache=object())


@pytest.mark.parametrize("blocks", [True, False])
def test_many_chats_are_answered_as_each_alone(blocks):
    """Rows that end leave the batch; the others, of other lengths, go on over several steps."""
    tokenizer = chatml()
    model = tiny_base(vocab_size=len(tokenizer))
    if blocks:
        model = get_peft_model(model, CalyrexConfig(placement=[2, 3, 4], scale=0.01))
        train_blocks(model)
    chats = [
        [{"role": "system", "content": "Say " * n}, {"role": "user", "content": "Now" * (9 - n)}] for n in range(1, 9)
    ]

    def answer_alone(chat):
        encoded = encode_chat(tokenizer, chat)
        length = encoded["input_ids"].shape[1]
        if not blocks:
            encoded.pop("system_mask")
        output = model.generate(**encoded, max_new_tokens=20, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        return output[0, length:]

    model.generation_config.eos_token_id = None
    unending = [answer_alone(chat).tolist() for chat in chats]
    ends = {token: {row.index(token) for row in unending if token in row} for row in unending for token in row}
    model.generation_config.eos_token_id = max(ends, key=lambda token: len(ends[token]))
    alone = [answer_alone(chat) for chat in chats]

    together = answer_chats(model, tokenizer, chats, max_new_tokens=20)

    assert len({len(answer) for answer in alone}) > 2
    assert together == tokenizer.batch_decode(alone, skip_special_tokens=True)


def test_a_layer_with_room_holds_what_a_plain_one_holds() -> None:
    generator = torch.Generator().manual_seed(0)
    new = [torch.randn(2, 3, 2, count, 4, generator=generator) for count in (5, 1, 70, 1, 1)]
    layers = (RoomyLayer(), DynamicLayer())

    for layer in layers:
        layer.update(*new[0])
        layer.update(*new[1])
        layer.crop(-2)
        layer.update(*new[2])
        layer.update(*new[3])
        layer.batch_select_indices(torch.tensor([2, 0]))
        layer.update(*new[4][:, :2])

    roomy, plain = layers
    assert torch.equal(roomy.keys, plain.keys)
    assert torch.equal(roomy.values, plain.values)
    assert roomy.get_seq_length() == plain.get_seq_length() == 76
