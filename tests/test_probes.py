import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from calyrex.analysis.probes import NUM_FOLDS, draw_labels, probe_layers

NUM_CHATS, WIDTH = 60, 80


@pytest.fixture
def features() -> np.ndarray:
    """Noise in layer 0; in layer 1 some directions tell the label."""
    noise = np.random.default_rng(0).normal(size=(NUM_CHATS, 2, WIDTH)).astype(np.float32)
    noise[:, 1, :8] += 20 * (np.arange(NUM_CHATS) % 2)[:, None]
    return noise


LABELS = ["even", "odd"] * (NUM_CHATS // 2)
GROUPS = [f"rule {number // 4}" for number in range(NUM_CHATS)]


def test_probe_finds_what_directions_tell_and_nothing_in_noise(features: np.ndarray) -> None:
    right = probe_layers(features, LABELS, GROUPS, seed=0)

    assert right.shape == (2, NUM_CHATS)
    assert right[0].mean() < 0.7
    assert right[1].mean() > 0.9


def test_probe_equals_a_plain_regression_on_standardised_features(features: np.ndarray) -> None:
    right = probe_layers(features, LABELS, GROUPS, seed=3)

    for layer in range(2):
        expected = np.zeros(NUM_CHATS, dtype=bool)
        folds = GroupKFold(NUM_FOLDS, shuffle=True, random_state=3)
        for train, test in folds.split(features, groups=GROUPS):
            own = features[train, layer].astype(np.float64)
            centre, spread = own.mean(axis=0), own.std(axis=0)
            model = LogisticRegression(max_iter=5000, tol=1e-6).fit((own - centre) / spread, np.array(LABELS)[train])
            told = model.predict((features[test, layer] - centre) / spread)
            expected[test] = told == np.array(LABELS)[test]
        assert right[layer].tolist() == expected.tolist()


def test_label_that_belongs_to_one_group_alone_cannot_be_told(features: np.ndarray) -> None:
    labels = [f"of {group}" for group in GROUPS]
    features[:, 1, :15] = 50 * np.eye(15)[np.arange(NUM_CHATS) // 4]

    assert probe_layers(features, labels, GROUPS, seed=0) is None


@pytest.mark.parametrize(("labels", "groups"), [(["same"] * NUM_CHATS, GROUPS), (LABELS, ["one rule"] * NUM_CHATS)])
def test_nothing_is_told_where_there_is_one_label_or_one_group(
    features: np.ndarray, labels: list[str], groups: list[str]
) -> None:
    assert probe_layers(features, labels, groups, seed=0) is None


def test_random_labels_are_the_same_ones_in_another_order() -> None:
    drawn = draw_labels(LABELS, seed=0)

    assert sorted(drawn) == sorted(LABELS)
    assert drawn != LABELS
    assert drawn == draw_labels(LABELS, seed=0)
