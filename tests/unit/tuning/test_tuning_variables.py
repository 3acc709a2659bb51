"""Which of n8n's variables exist in which version, and what each version does without them."""

from __future__ import annotations

import pytest

from recovery.domain.n8n.versions import Version, parse, text, version_of_image
from recovery.domain.tuning import n8n_variables
from recovery.domain.tuning.n8n_variables import MAX_STALLED, OLD_SHUTDOWN, SHUTDOWN, defaults, ignored


@pytest.mark.parametrize(
    ("name", "version", "instead"),
    [
        (MAX_STALLED, "2.0.0", ""),
        (MAX_STALLED, "1.15.0", ""),
        (SHUTDOWN, "1.21.9", OLD_SHUTDOWN),
        ("QUEUE_RECOVERY_INTERVAL", "1.65.0", "N8N_EXECUTIONS_QUEUE_RECOVERY_INTERVAL"),
        ("QUEUE_RECOVERY_BATCH", "1.123.5", ""),
        ("QUEUE_OF_YESTERDAY", "2.41.1", ""),
        ("N8N_QUEUE_BULL_GRACEFULSHUTDOWNTIMEOUT", "1.123.5", SHUTDOWN),
        ("N8N_GRACEFULL_SHUTDOWN_TIMOUT", "1.123.5", SHUTDOWN),
        ("QUEUE_WORKER_LOCK_DURATION", "1.15.0", ""),
    ],
)
def test_a_variable_is_not_read_outside_of_its_versions(name: str, version: str, instead: str) -> None:
    said = ignored(name, _version(version))
    assert said
    assert said[1] == instead


@pytest.mark.parametrize(
    ("name", "version"),
    [
        (MAX_STALLED, "1.123.75"),
        (MAX_STALLED, "1.15.1"),
        (SHUTDOWN, "1.22.0"),
        ("QUEUE_RECOVERY_INTERVAL", "1.64.3"),
        ("QUEUE_WORKER_LOCK_DURATION_FILE", "1.123.5"),
        ("N8N_METRICS_INCLUDE_CACHE_METRICS", "1.123.5"),
        ("SOMETHING_OF_THEIR_OWN", "1.123.5"),
        ("QUEUE_OF_TOMORROW", "2.99.0"),
    ],
)
def test_nothing_is_said_of_what_is_read_or_not_known(name: str, version: str) -> None:
    assert ignored(name, _version(version)) is None


def test_the_lock_grew_with_1_111() -> None:
    before, after = defaults((1, 110, 9)), defaults((1, 111, 0))
    assert (before.lock, before.renew) == (30, 15)
    assert (after.lock, after.renew) == (60, 10)
    assert before.stalled_interval == after.stalled_interval == 30


def test_2_0_forgives_no_stall() -> None:
    assert defaults((1, 123, 75)).max_stalled == 1
    assert defaults((2, 0, 0)).max_stalled == 0


def test_the_old_name_is_an_alias_since_1_22() -> None:
    assert not n8n_variables.has_alias((1, 21, 9))
    assert n8n_variables.has_alias((1, 22, 0))


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("docker.n8n.io/n8nio/n8n:1.123.5", (1, 123, 5)),
        ("n8nio/n8n:2.0.0@sha256:abc", (2, 0, 0)),
        ("localhost:5000/n8nio/n8n:v1.99.0-rc.1", (1, 99, 0)),
        ("localhost:5000/n8nio/n8n", None),
        ("n8nio/n8n:latest", None),
        ("n8nio/n8n", None),
    ],
)
def test_an_images_tag_says_the_version(image: str, version: Version | None) -> None:
    assert version_of_image(image) == version


def test_a_short_version_names_the_newest_of_its_line() -> None:
    found = parse("1.111")
    assert found
    assert (1, 111, 99) < found < (1, 112, 0)
    assert text(found) == "1.111.x"


def test_no_variable_is_a_slip_of_another_that_is_read() -> None:
    """Else the right name of one would be taken for a wrong one of the other."""
    pair = {"QUEUE_BULL_REDIS_HOST", "QUEUE_BULL_REDIS_PORT"}  # both are known, and each is looked up first
    for name in n8n_variables.VARIABLES.keys() - pair:
        assert not [other for other in n8n_variables.VARIABLES if n8n_variables.is_slip(name, other)], name


def _version(written: str) -> Version:
    found = parse(written)
    assert found
    return found
