"""Serves static files: hashed, compressed and immutable once collected; plain and fresh before that."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import brotli  # type: ignore[import-untyped]  # no stubs
from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.core.files.storage import FileSystemStorage
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from whitenoise.compress import Compressor
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage

PLOTLY = "plotly.min.js"
PIECE = 64 * 1024  # bytes


class BrotliCompressor(Compressor):  # type: ignore[misc]  # whitenoise has no types
    """Compresses with Brotli at 9: plotly takes 0.4 s and 1.23 MB; at the default of 11, 14.5 s and 1.11 MB."""

    @staticmethod
    def compress_brotli(data: bytes) -> bytes:
        return bytes(brotli.compress(data, quality=9))


class HashedStaticFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # whitenoise has no types
    """Names files by their hash; one that `collectstatic` has not seen keeps its plain name, so that nothing breaks."""

    def url(self, name: str, force: bool = False) -> str:
        if self.hash_key(self.clean_name(name)) not in self.hashed_files:
            return str(StaticFilesStorage.url(self, name))
        return str(super().url(name, force))

    def create_compressor(self, **options: Any) -> BrotliCompressor:
        return BrotliCompressor(**options)


class PlotlyFinder(BaseFinder):
    """Finds plotly.min.js in the plotly package without importing that, which would take half a second."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        spec = find_spec("plotly")
        package = Path(spec.origin).parent if spec and spec.origin else None
        self._storage = FileSystemStorage(location=package and package / "package_data")
        self._storage.prefix = "plotly"  # type: ignore[attr-defined]  # read by collectstatic

    def find(self, path: str, find_all: bool = False, **_: Any) -> Any:
        found = [self._storage.path(PLOTLY)] if path == f"plotly/{PLOTLY}" else []
        return found[0] if found and not find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, FileSystemStorage]]:
        yield PLOTLY, self._storage


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]  # whitenoise has no types
    """Streams files under ASGI in pieces as the client takes them, so that a slow client holds one piece in memory."""

    def add_files(self, root: str | Path, prefix: str | None = None) -> None:
        """Accepts that `collectstatic` has not made the directory yet: then the sources are served."""
        if Path(root).is_dir():
            super().add_files(root, prefix)

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponseBase:
        found = static_file.get_response(request.method, request.META)
        response = _streamed(found) if isinstance(request, ASGIRequest) and found.file is not None else _whole(found)
        length = response.headers.get("Content-Length")
        del response["content-type"]
        for key, value in found.headers:
            response[key] = value
        if length is not None:  # the length that was noted at the start is wrong once the file is edited
            response["Content-Length"] = length
        return response


def _whole(found: Any) -> HttpResponse:
    body = b""
    if found.file is not None:
        with found.file as file:
            body = file.read()
    response = HttpResponse(body, status=int(found.status))
    if body:
        response["Content-Length"] = str(len(body))
    return response


def _streamed(found: Any) -> StreamingHttpResponse:
    response = StreamingHttpResponse(_Pieces(found.file), status=int(found.status))
    if found.status == HTTPStatus.OK:
        response["Content-Length"] = str(os.fstat(found.file.fileno()).st_size)
    return response


class _Pieces:
    """Reads on the event loop, where a piece from the cache takes microseconds. Django closes it in the end."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if piece := self._file.read(PIECE):
            return bytes(piece)
        raise StopAsyncIteration

    def close(self) -> None:
        self._file.close()
