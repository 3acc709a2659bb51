from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dashboard.env import Environment
from dashboard.secret_key import FILE, key, stored_key


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    made = stored_key(tmp_path / "new")
    assert len(made) > 50
    assert stored_key(tmp_path / "new") == made
    assert stat.S_IMODE((tmp_path / "new" / FILE).stat().st_mode) == 0o600


def test_processes_that_start_together_use_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(stored_key, [tmp_path] * 32))) == 1
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_key_from_the_environment_writes_nothing(tmp_path: Path) -> None:
    env = Environment({"UNSTALL_SECRET_KEY": "k" * 40})
    assert key(env, tmp_path) == "k" * 40
    assert list(tmp_path.iterdir()) == []


def test_a_short_key_is_refused_without_repeating_it(tmp_path: Path) -> None:
    env = Environment({"UNSTALL_SECRET_KEY": "hunter2"})
    key(env, tmp_path)
    assert [problem.key for problem in env.problems] == ["UNSTALL_SECRET_KEY"]
    assert "hunter2" not in str(env.problems[0])


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = Environment({})
    assert key(env, tmp_path / "file" / "below")
    assert [problem.key for problem in env.problems] == ["UNSTALL_DATA_DIR"]
