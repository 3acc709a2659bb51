"""The source of files: logs on the machine of the web process, under configured folders only."""

from recovery.logs.files.source import FilesSource

__all__ = ["FilesSource"]
