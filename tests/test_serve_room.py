"""Places for answers."""

import pytest

from calyrex.serve.request import Generation, Sampling
from calyrex.serve.room import Room
from calyrex.serve.served import ServedModel

BASE, MINE = ServedModel("base", None), ServedModel("mine", "adapter0")


def request(model: ServedModel, num_prompt: int, num_new: int) -> Generation:
    sampling = Sampling(max_new_tokens=num_new)
    return Generation(model, [1] * num_prompt, [False] * num_prompt, lambda _event: None, sampling=sampling)


def test_all_rows_of_a_batch_count_as_its_longest() -> None:
    room = Room(max_answers=10, max_tokens=100)

    assert room.take(request(BASE, 5, 5), num_answers=3)  # 30
    assert not room.take(request(BASE, 20, 10), num_answers=1)  # 4 rows of 30
    assert room.take(request(BASE, 15, 10), num_answers=1)  # 4 rows of 25
    assert not room.take(request(BASE, 1, 1), num_answers=1)


def test_batches_of_several_models_share_the_places() -> None:
    room = Room(max_answers=3, max_tokens=100)

    assert room.take(request(BASE, 20, 20), num_answers=2)
    assert not room.take(request(MINE, 20, 20), num_answers=1)
    assert room.take(request(MINE, 10, 10), num_answers=1)
    assert not room.take(request(MINE, 1, 1), num_answers=1)


@pytest.mark.parametrize("num_answers", [1, 4])
def test_one_request_always_fits_by_itself(num_answers: int) -> None:
    room = Room(max_answers=1, max_tokens=10)

    assert room.take(request(BASE, 20, 20), num_answers)
    assert not room.take(request(BASE, 1, 1), num_answers=1)
