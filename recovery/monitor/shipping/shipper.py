"""Ships logs in turns: checks the files, reads new lines, and writes them together with the new positions.

Nothing is buffered: a file itself is the buffer, and after any failure the store's positions tell where to go on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

from recovery.errors import StoreError
from recovery.monitor.shipping import copytruncate
from recovery.monitor.shipping.file_tail import AGAIN, FileTail, FileTruncated
from recovery.monitor.shipping.file_watcher import FileWatcher, Say
from recovery.monitor.shipping.formats import Group
from recovery.monitor.shipping.journal import KEY, Journal
from recovery.monitor.shipping.positions import ShippedFilePosition
from recovery.monitor.shipping.stream_entries import PackedStreamEntry, pack_entries
from recovery.monitor.shipping.stream_writer import LogStreamWriter, WriteConflict, patterns_field
from recovery.monitor.store_clock import StoreClock
from recovery.shared_clock import steady

# -- resume
# Resumes files at the positions in the store: after a start, and when it is unknown what the store has written.


def resume_positions(watch: FileWatcher, places: Mapping[str, ShippedFilePosition], known: Set[str]) -> None:
    """Sets the positions of all files. `places` by their keys. `known`: patterns that were followed before, whose files
    without a position were created while no monitor ran. Raises OSError.
    """
    if watch.is_settled:
        for tail in watch.tails.values():
            tail.rewind(places.get(tail.key, tail.place))
            tail.is_unsaved = tail.key not in places
        return
    for tail in list(watch.tails.values()):
        place = places.get(tail.key)
        if place is not None and _belongs(watch, tail, place):
            _resume(watch, tail, place)
        elif tail.id in watch.first:
            _begin(watch, tail, places, is_new=watch.matched[tail.id].glob in known)
    followed = {tail.key for tail in watch.tails.values()}
    for key, place in places.items():
        if key not in followed and not _recover(watch, key, place):
            watch.finished.append(key)
    watch.first.clear()
    watch.is_settled = True


def _belongs(watch: FileWatcher, tail: FileTail, place: ShippedFilePosition) -> bool:
    """Returns True if the position is of this file: it has the same path or fingerprint, as inodes are reused."""
    return place.path == tail.path or (watch.handles.try_to(tail) and place.print.fits(tail.file, place.offset))


def _resume(watch: FileWatcher, tail: FileTail, place: ShippedFilePosition) -> FileTail:
    watch.handles.close(tail)
    resumed = FileTail.make(tail.kind, tail.id, tail.path, watch.server, place)
    resumed.is_unsaved = False
    resumed.size, resumed.changed, resumed.grew_at = tail.size, tail.changed, tail.grew_at
    watch.add(resumed)
    return resumed


def _begin(watch: FileWatcher, tail: FileTail, places: Mapping[str, ShippedFilePosition], *, is_new: bool) -> None:
    """Begins a file of which nothing was shipped: at its end, at its start, or, for a copy, where its original was."""
    if not is_new:
        watch.skip(tail, watch.first[tail.id])
    elif watch.handles.try_to(tail):
        for key, place in places.items():
            if place in copytruncate.in_same_folder(tail.path, (place,)) and copytruncate.is_copy_of(place, tail.file):
                _begin_copy(watch, tail, place, next((one for one in watch.tails.values() if one.key == key), None))
                return


def _begin_copy(watch: FileWatcher, tail: FileTail, place: ShippedFilePosition, original: FileTail | None) -> None:
    """Reads on in the copy if the original was truncated, else skips what the copy contains."""
    if original is not None and watch.handles.try_to(original) and place.print.fits(original.file, place.offset):
        watch.skip(tail, tail.size)
    else:
        _resume(watch, tail, place).is_unsaved = True


def _recover(watch: FileWatcher, key: str, place: ShippedFilePosition) -> bool:
    """Follows a file that was renamed while no monitor ran, or whose device number has changed.

    Returns False if the stored position is of no use any more.
    """
    kind, _, inode = key.split(":")
    found = copytruncate.with_inode(place.path, int(inode))
    if found is None:
        return False
    tail = FileTail.make(kind, found.id, found.path, watch.server, place)
    if not watch.handles.try_to(tail) or not place.print.fits(tail.file, place.offset):
        watch.handles.close(tail)
        return False
    if found.id not in watch.matched:
        tail.astray_at = 0.0
    watch.tails[found.id] = tail
    return tail.key == key


# -- shipper


# -- backoff
# Backoff for a store that fails: a pause that grows, with jitter.


SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 15.0  # seconds


@dataclass(slots=True)
class ShippingBackoff:
    pause: float = 0.0
    try_at: float = 0.0
    told: str = ""  # why the last one failed; "" when it did not

    def failed(self, reason: str, now: float) -> bool:
        """Sets the next pause; returns True for the first failure in a row."""
        self.pause = min(max(SHORTEST_PAUSE, self.pause * 2), LONGEST_PAUSE)
        self.try_at = now + self.pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, guards nothing
        is_new, self.told = not self.told, reason
        return is_new

    def succeeded(self) -> bool:
        """Resets the pause; returns True if the last attempt had failed."""
        is_back = bool(self.told)
        self.pause, self.try_at, self.told = 0.0, 0.0, ""
        return is_back


# -- shipper


BUSY, CALM = 0.2, 0.5  # seconds between two turns: while lines come, and when none came for a while
CALM_AFTER = 10.0
BATCH = 1 << 20  # bytes that are read in one turn: a tenth of a second, and some MB of memory
HEARTBEAT_EVERY = 600.0  # seconds after which the positions are written although there is nothing to ship


@dataclass(slots=True)
class ShippingBatch:
    """Lines and positions that one turn has read."""

    parcels: list[PackedStreamEntry] = field(default_factory=list)
    reached: dict[str, tuple[FileTail, ShippedFilePosition]] = field(default_factory=dict)
    read: int = 0  # bytes
    is_all: bool = True  # there is nothing more to read at once

    def places(self) -> dict[str, str]:
        return {key: place.encode() for key, (_, place) in self.reached.items()}


class Shipper:
    def __init__(
        self, watch: FileWatcher, journal: Journal | None, depot: LogStreamWriter, times: StoreClock, say: Say
    ) -> None:
        self._watch, self._journal, self._depot = watch, journal, depot
        self._times, self._say = times, say
        self._attempts = ShippingBackoff()
        self._is_sure = False  # our positions are those of the store
        self._patterns = patterns_field(pattern.glob for pattern in watch.wanted)
        self._unsaved: Mapping[str, str] = {}
        self._turns = 0
        self._beat_at = self._busy_until = 0.0

    def turn(self, now: float) -> float:
        """Runs one turn; returns the seconds until the next. Files are checked without the store too, as they move."""
        self._watch.look(now, lambda: steady() - now)
        if now < self._attempts.try_at:
            return CALM
        try:
            if not self._is_sure:
                self._settle(now)
            load = self._gathered(now)
            self._bring(load, now)
        except WriteConflict:
            self._is_sure = False
            return BUSY
        except StoreError as error:
            self._missed(f"{error}; log lines wait in their files. {error.advice}", now)
            return CALM
        except OSError as error:
            self._missed(f"log files cannot be followed for now: {error}", now)
            return CALM
        if self._attempts.succeeded():
            self._say("log lines are shipped again")
        if load.parcels:
            self._busy_until = now + CALM_AFTER
        if not load.is_all:
            return 0.0
        return BUSY if now < self._busy_until else CALM

    def close(self) -> None:
        if self._journal:
            self._journal.close()
        self._watch.handles.close_all()
        self._depot.close()

    def _settle(self, now: float) -> None:
        known = self._depot.known()
        self._times.heard(known.now, now)
        resume_positions(self._watch, known.places, known.patterns)
        if self._journal:
            self._journal.settle(known.journal)
        self._unsaved = self._patterns
        self._beat_at = 0.0
        self._is_sure = True

    def _gathered(self, now: float) -> ShippingBatch:
        load, moment = ShippingBatch(), self._times.at(now) * 1_000_000
        news = self._watch.with_news(now)
        first = self._turns % len(news) if news else 0
        for number, tail in enumerate([*news[first:], *news[:first]]):
            if load.read >= BATCH:
                self._turns += number  # the others come first in the next turn
                load.is_all = False
                break
            load.parcels += pack_entries(self._groups(tail, now, moment, load))
            load.is_all = load.is_all and not tail.has_news
        if self._journal:
            load.parcels += pack_entries(self._journal.gather(now, moment))
            load.is_all = load.is_all and not self._journal.is_behind
        for tail in self._watch.tails.values():
            if tail.is_unsaved and tail.key not in load.reached:
                load.reached[tail.key] = tail, tail.place
        return load

    def _groups(self, tail: FileTail, now: float, moment: int, load: ShippingBatch) -> Iterator[Group]:
        """Yields the new lines of a file and notes the position after them: both or none."""
        before = tail.place
        try:
            self._watch.handles.use(tail)
            start = tail.reading.position
            groups = tail.gather(now, moment)
            load.read += max(0, tail.reading.position - start)
            load.reached[tail.key] = tail, tail.reached()
        except FileTruncated:
            self._watch.restart(tail, now)
        except FileNotFoundError:  # renamed just now: the next look finds it
            tail.rewind(before)
        except OSError as error:
            self._unreadable(tail, error, now)
            tail.rewind(before)
        else:
            yield from groups

    def _bring(self, load: ShippingBatch, now: float) -> None:
        places, gone = {**load.places(), **self._unsaved}, list(self._watch.finished)
        journal = self._journal
        is_due = now >= self._beat_at
        if journal and (journal.is_unsaved or is_due):  # entries of other units are skipped once, not again
            places[KEY] = journal.place
        if not (load.parcels or places or gone or is_due):
            return
        self._depot.bring(load.parcels, places, gone, self._times.at(now))
        for tail, place in load.reached.values():
            tail.place, tail.is_unsaved = place, False
        if journal:
            journal.is_unsaved = False
        del self._watch.finished[: len(gone)]
        self._unsaved, self._beat_at = {}, now + HEARTBEAT_EVERY

    def _missed(self, said: str, now: float) -> None:
        self._is_sure = False
        if self._attempts.failed(said, now):
            self._say(said)

    def _unreadable(self, tail: FileTail, error: OSError, now: float) -> None:
        tail.try_at = now + AGAIN
        if not tail.is_told:
            tail.is_told = True
            self._say(f"{tail.path} cannot be read and is tried again every {AGAIN:g} s: {error.strerror}")
