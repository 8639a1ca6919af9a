"""A result names the commit of the program that made it, where the program is a checkout."""

import shutil
import subprocess
from pathlib import Path

import pytest

from calyrex.training import folder
from calyrex.training.folder import find_commit


def run_git(place: Path, *words: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", "-C", str(place), *identity, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a tag, in which the module seems to lie."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    module = tmp_path / "folder.py"
    module.write_text("1\n", encoding="utf-8")
    run_git(tmp_path, "init", "-q")
    run_git(tmp_path, "add", "folder.py")
    run_git(tmp_path, "commit", "-q", "-m", "first")
    run_git(tmp_path, "tag", "-a", "v1", "-m", "v1")
    monkeypatch.setattr(folder, "__file__", str(module))
    return tmp_path


def test_a_checkout_names_its_commit_and_whether_files_differ(checkout: Path) -> None:
    commit = run_git(checkout, "rev-parse", "HEAD")

    assert find_commit() == commit
    (checkout / "folder.py").write_text("2\n", encoding="utf-8")
    assert find_commit() == f"{commit}-dirty"


def test_an_installed_program_does_not_name_the_commit_of_the_repository_it_lies_in(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = checkout / "installed.py"
    installed.write_text("", encoding="utf-8")
    monkeypatch.setattr(folder, "__file__", str(installed))

    assert find_commit() is None
