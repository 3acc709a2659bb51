"""Resumes files at the positions in the store: after a start, and when it is unknown what the store has written."""

from __future__ import annotations

from collections.abc import Mapping, Set

from recovery.monitor.shipping import copytruncate
from recovery.monitor.shipping.file_tail import FileTail
from recovery.monitor.shipping.file_watcher import FileWatcher
from recovery.monitor.shipping.positions import ShippedFilePosition


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
