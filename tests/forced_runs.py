"""Runs of a conversation from token ids, and a model in which the layer that carries the rule is known."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from calyrex.analysis.forced import ForcedRun, ForcedRuns
from tiny import VOCABULARY

NUM_LAYERS = 6
NUM_RULES, NUM_WORDINGS = 4, 5
_RULES, _ANSWERS, _FILLERS, _VOCABULARY = 1, 21, 25, 32
_HIDDEN, _HEAD_DIM, _SLOWEST = 40, 16, 7


def forced_run(prompt: list[int], system: slice, tail: list[int], targets: list[int]) -> ForcedRun:
    mask = torch.zeros(1, len(prompt), dtype=torch.bool)
    mask[0, system] = True
    classes = ["system" if is_system else "user" for is_system in mask[0].tolist()]
    classes[0] = "template"
    return ForcedRun(
        prompt=torch.tensor([prompt]),
        tail=torch.tensor([tail]),
        targets=torch.tensor(targets),
        system_mask=mask,
        classes=[*classes, "template", *["answer"] * (len(tail) - 1)],
    )


def random_runs(seed: int = 0, num_answer_tokens: int = 5) -> ForcedRuns:
    """Return three runs of one answer whose prompts have other system prompts, of other lengths."""
    generator = torch.Generator().manual_seed(seed)

    def draw(count: int) -> list[int]:
        return torch.randint(3, VOCABULARY, (count,), generator=generator).tolist()

    question, last, targets = draw(9), draw(1), draw(num_answer_tokens)
    runs = []
    for size in (4, 6, 3):
        prompt = [1, *draw(size), *question]
        runs.append(forced_run(prompt, slice(1, 1 + size), [*last, *targets[:-1]], targets))
    return ForcedRuns(*runs)


def known_model(layer: int) -> LlamaForCausalLM:
    """Build a model whose layers are the identity but one, whose attention carries the rule to every later token.

    Each token is a direction of its own. In the known layer every token asks the same, only rule tokens answer, and
    what they say is which rule they word; the output reads the answer off that.
    """
    config = LlamaConfig(
        vocab_size=_VOCABULARY,
        hidden_size=_HIDDEN,
        intermediate_size=4,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=_HEAD_DIM,
        tie_word_embeddings=False,
        # The slowest pair of dimensions hardly turns: what it says does not depend on the distance.
        rope_parameters={"rope_type": "default", "rope_theta": 1e12},
    )
    model = LlamaForCausalLM(config).eval()
    model.requires_grad_(False)
    for decoder_layer in model.model.layers:
        decoder_layer.self_attn.o_proj.weight.zero_()
        decoder_layer.mlp.down_proj.weight.zero_()
    model.model.embed_tokens.weight.copy_(torch.eye(_VOCABULARY, _HIDDEN))
    attention = model.model.layers[layer - 1].self_attn
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj, model.lm_head):
        projection.weight.zero_()
    attention.q_proj.weight[_SLOWEST, :_VOCABULARY] = 3.0
    attention.k_proj.weight[_SLOWEST, _RULES:_ANSWERS] = 3.0
    for rule in range(NUM_RULES):
        words = slice(_RULES + rule * NUM_WORDINGS, _RULES + (rule + 1) * NUM_WORDINGS)
        attention.v_proj.weight[rule, words] = 1.0
        attention.o_proj.weight[_VOCABULARY + rule, rule] = 1.0
        model.lm_head.weight[_ANSWERS + rule, _VOCABULARY + rule] = 3.0
    return model


def known_runs(rule: int, wording: int) -> ForcedRuns:
    """Return the runs of a conversation under one of the rules of ``known_model``."""
    other = (rule + 1) % NUM_RULES
    systems = (_RULES + rule * NUM_WORDINGS + wording, _RULES + other * NUM_WORDINGS + wording, _FILLERS)
    answer = _ANSWERS + rule
    return ForcedRuns(
        *(
            forced_run(
                [_FILLERS + 1, system, *range(_FILLERS + 2, _FILLERS + 6)], slice(1, 2), [31, answer], [answer] * 2
            )
            for system in systems
        )
    )
