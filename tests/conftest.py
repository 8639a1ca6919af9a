import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported: nothing is downloaded
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start; more threads round differently

import pytest
import torch

torch.set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
