"""PEFT knows the method in whatever order things are imported, and importing the package stays light."""

import subprocess
import sys

import pytest

CHECK = "; import peft; assert peft.mapping.PEFT_TYPE_TO_TUNER_MAPPING['CALYREX'].__name__ == 'CalyrexModel'"


@pytest.mark.parametrize(
    "first",
    [
        "import calyrex",
        pytest.param("import calyrex.tuner", marks=pytest.mark.slow),
        pytest.param("import calyrex, peft", marks=pytest.mark.slow),
        pytest.param("import calyrex.config", marks=pytest.mark.slow),
        pytest.param("from peft import PeftModel; import calyrex; import calyrex.config", marks=pytest.mark.slow),
    ],
)
def test_peft_knows_the_method_in_any_order_of_imports(first: str) -> None:
    subprocess.run([sys.executable, "-c", first + CHECK], check=True)


def test_importing_the_package_loads_neither_torch_nor_peft() -> None:
    code = "import calyrex, sys; assert not {'torch', 'peft', 'transformers'} & sys.modules.keys()"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there() -> None:
    import calyrex

    assert len(calyrex.__all__) <= 12
    for name in calyrex.__all__:
        assert getattr(calyrex, name).__name__ == name
