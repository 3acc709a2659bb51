"""Any bytes give findings or a clear error; any settings give a patch after which nothing is left to patch."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.tuning.prediction import predict
from recovery.domain.tuning.proposal import ABOUT, propose_timing
from recovery.domain.tuning.timing import WorkerTiming
from recovery.errors import Illegible
from tests.support.tuning import KUBERNETES, judged, kinds, patched

BY_HAND = {
    "no-health-check",
    "fails-at-once",
    "code-nodes-cut",
    "many-connections",
    "no-second-run",
    "many-stalls",
    "short-lock",
}
SECONDS = st.floats(0.001, 10_000).map(lambda value: round(value, 3))
TIMINGS = st.builds(
    WorkerTiming,
    lock=SECONDS,
    renew=SECONDS,
    stalled_interval=st.just(0.0) | SECONDS,
    max_stalled=st.integers(0, 9),
    shutdown=st.none() | SECONDS,
    pre_stop=st.floats(0, 100),
    grace=st.none() | SECONDS,
)
NAMES = st.sampled_from(
    [
        "QUEUE_WORKER_LOCK_DURATION",
        "QUEUE_WORKER_LOCK_RENEW_TIME",
        "QUEUE_WORKER_STALLED_INTERVAL",
        "QUEUE_WORKER_MAX_STALLED_COUNT",
        "QUEUE_WORKER_TIMEOUT",
        "N8N_GRACEFUL_SHUTDOWN_TIMEOUT",
        "N8N_QUEUE_BULL_GRACEFULSHUTDOWNTIMEOUT",
        "QUEUE_SOMETHING",
        "QUEUE_HEALTH_CHECK_ACTIVE",
    ]
)
VALUES = st.integers(0, 200_000).map(str) | st.sampled_from(["", "60s", "true", "x"])
ENVIRONMENTS = st.dictionaries(NAMES, VALUES, max_size=9)
VERSIONS = st.sampled_from(["1.14.0", "1.20.0", "1.100.0", "1.123.5", "2", "2.36.5", "latest"])
SHAPES = st.sampled_from(["map", "list", "env", "kubernetes"])


def written(shape: str, version: str, environment: dict[str, str]) -> dict[str, str]:
    head = f"services:\n  worker:\n    image: n8nio/n8n:{version}\n    command: worker\n"
    if shape == "env":
        return {"w.env": "#\n" + "".join(f"{name}={value}\n" for name, value in environment.items())}
    if shape == "kubernetes":
        form = '            - name: {}\n              value: "{}"\n'
        pairs = "".join(form.format(*pair) for pair in environment.items())
        start, end = KUBERNETES.index("            - name: DB_"), KUBERNETES.index("          readinessProbe")
        text = KUBERNETES[:start] + pairs + KUBERNETES[end:]
        return {"k.yaml": text.replace("1.123.5", version) if pairs else text.replace("          env:\n", "")}
    form = "      - {}={}\n" if shape == "list" else "      {}: '{}'\n"
    lines = "".join(form.format(*pair) for pair in environment.items())
    return {"c.yaml": head + (f"    environment:\n{lines}" if lines else "")}


@given(SHAPES, VERSIONS, ENVIRONMENTS)
def test_what_was_patched_is_found_no_more(shape: str, version: str, environment: dict[str, str]) -> None:
    files = written(shape, version, environment)
    first = judged(files)
    after = patched(first, files)
    second = judged(after)
    # Before 1.15.1 nothing but the shutdown can be set at all.
    fixed = {"slow-recovery", "renewed-too-late"} if version == "1.14.0" else set()
    assert kinds(second) <= BY_HAND | fixed, after
    assert not second.patches, after


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_give_findings_or_a_clear_error(content: bytes) -> None:
    try:
        judged({"any": content})
    except Illegible as error:
        reason, line = error.reason, error.line
    else:
        return
    assert reason
    assert line <= len(content) + 1


_WORDS = ("services:", "kind: Deployment", "apiVersion: v1", "spec:", "environment:", "env:", "image: n8n", "worker")
_SIGNS = ("&a ", "*a", "<<: *a", "- ", "- name: x", "value: 1", "  ", "\n", "{", "}", "[", "]", "'", '"', ">\n", "!!x ")
_PIECES = st.sampled_from([*_WORDS, *_SIGNS, "---\n", ": ", ","])


@given(st.lists(_PIECES, max_size=40).map("".join))
def test_pieces_of_manifests_give_findings_or_a_clear_error(text: str) -> None:
    files = {"any": text}
    try:
        found = judged(files)
    except Illegible:
        return
    judged(patched(found, files))


@given(TIMINGS)
def test_a_prediction_holds_together(timing: WorkerTiming) -> None:
    said = predict(timing)
    if said.recovery is None:
        assert timing.stalled_interval == 0
        return
    recovery = said.recovery
    assert 0 <= recovery.at_least <= recovery.typical <= recovery.about + 1e-6
    assert recovery.about <= recovery.worst
    assert math.isclose(recovery.worst, sum(stage.at_most for stage in recovery.stages))


@given(TIMINGS, st.booleans())
def test_what_is_proposed_is_never_worse_and_proposed_but_once(timing: WorkerTiming, may_pause: bool) -> None:
    better = propose_timing(timing, has_pre_stop=may_pause)
    assert propose_timing(better, has_pre_stop=may_pause) == better
    now, then = predict(timing), predict(better)
    assert then.recovery
    assert then.recovery.about <= ABOUT
    assert now.recovery is None or then.recovery.about <= now.recovery.about
    assert then.shutdown is None or not then.shutdown.races
    assert better.shutdown is None or better.shutdown >= (timing.shutdown or 0)
