"""What can be read off the stream: linear probes at every layer, beside the same probes on random labels.

A probe that can be trained says that something is there in a form that a linear map finds, not that the model uses it.
That a probe may only know its inputs by heart, for which J. Hewitt and P. Liang give it control tasks ("Designing and
interpreting probes with control tasks", arXiv:1909.03368), is kept out by the folds: it is tested under rules whose
texts it has never met. Random labels are the baseline that such a test gives to a probe that can tell nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import StandardScaler

Features: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

NUM_FOLDS = 5
_MAX_ITERATIONS = 2000


def probe_layers(features: Features, labels: Sequence[object], groups: Sequence[str], seed: int) -> Flags | None:
    """Train and test a logistic regression on standardised features, cross-validated, for each layer.

    All labels weigh the same, however often they occur.

    Args:
        features: The stream of each conversation after layers 0 .. L, ``[N, L + 1, E]``.
        labels: What is to be read off, one for each conversation.
        groups: Conversations of one group are never in training and test data at once.
        seed: Seed of the folds.

    Returns:
        Whether each conversation was told right when it was in the test data, ``[L + 1, N]`` bool; None where there are
        fewer than two labels, or one that stands in one group alone, which no test can tell.
    """
    numbers: Labels = np.unique([str(label) for label in labels], return_inverse=True)[1]
    num_folds = min(NUM_FOLDS, len(set(groups)))
    pairs = set(zip(numbers.tolist(), groups, strict=True))
    num_groups = Counter(number for number, _ in pairs)
    if len(num_groups) < 2 or min(num_groups.values()) < 2:
        return None
    folds = list(GroupKFold(num_folds, shuffle=True, random_state=seed).split(numbers, groups=list(groups)))
    right = np.zeros((features.shape[1], len(numbers)), dtype=np.bool_)
    for train, test in folds:
        for layer in range(features.shape[1]):
            told = _tell(features[train, layer], numbers[train], features[test, layer])
            right[layer, test] = told == numbers[test]
    return right


def draw_labels(labels: Sequence[object], seed: int) -> list[object]:
    """Return the labels dealt out at random, each as often as before: nothing tells them."""
    order = np.random.default_rng(seed).permutation(len(labels))
    return [labels[place] for place in order]


def _tell(train: Features, labels: Labels, test: Features) -> Labels:
    """Train on ``[N, E]`` and return the labels told for other rows."""
    if len(set(labels.tolist())) == 1:
        return np.full(len(test), labels[0])
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    if train.shape[1] > train.shape[0]:
        # The weights lie in the space that the training rows span: the same probe, in fewer dimensions.
        basis = np.linalg.svd(train, full_matrices=False)[2].T
        train, test = train @ basis, test @ basis
    told: Labels = (
        LogisticRegression(max_iter=_MAX_ITERATIONS, class_weight="balanced").fit(train, labels).predict(test)
    )
    return told
