"""Archives read back: into an installation that does not have their rows yet, as a test of them or to move a person."""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import IntegrityError, transaction

from governance import signing
from governance.actors import Actor
from governance.domain import archives, audit, registry
from governance.domain.category import Scope
from governance.errors import Conflict, Invalid
from governance.models import Subject

_READ = 1024 * 1024


class AlreadyImported(Conflict):
    code, title = "already_imported", "Rows of this archive are here already"
    detail = "This archive, or part of it, was imported before. Import it into an empty installation."


@dataclass(frozen=True, slots=True)
class Imported:
    """Rows by category: as the archive counts them, and as they are now. `left` are categories that cannot move;
    `is_signed`: this installation's signing key made the manifest.
    """

    subject: Subject
    is_signed: bool
    expected: dict[str, int]
    found: dict[str, int]
    left: list[str]

    @property
    def is_whole(self) -> bool:
        return all(self.found[key] == rows for key, rows in self.expected.items() if key not in self.left)


def import_export(*, paths: list[Path], tenant_id, by: Actor) -> Imported:
    """Verify the archive's files against its manifest, then store its rows for a new subject of the tenant.

    All or nothing, in one transaction. `paths` are all volumes, in any order. Raises Invalid for an archive that is not
    whole or was changed, AlreadyImported, and AmbiguousIdentifier when somebody here has the person's identifier.
    """
    with _Archive(paths) as archive:
        archive.verify()
        try:
            with transaction.atomic():
                return _store(archive, tenant_id, by)
        except IntegrityError:
            raise AlreadyImported from None


def _store(archive: "_Archive", tenant_id, by: Actor) -> Imported:
    subject = Subject.objects.create(tenant_id=tenant_id)
    scope = Scope(tenant_id, subject.id)
    expected = archive.manifest["counts"]
    left = [key for key in expected if key not in registry.categories()]
    # Parents first; the identifiers, which go last, come before everything.
    for category in reversed(registry.erase_order()):
        if category.key in expected:
            rows = archive.rows(category.key)
            if category.load(rows=rows, scope=scope, files=archive.file) is None and expected[category.key]:
                left.append(category.key)
    found = {key: registry.get(key).verify(scope=scope) if key not in left else 0 for key in expected}
    audit.record(
        "export.imported", by=by, object_type="subject", object_ref=subject.id, object_label=subject.display_ref,
        rows=sum(found.values()), left=left,
    )  # fmt: skip
    return Imported(subject, signing.is_signed(archive.manifest), expected, found, sorted(left))


class _Archive:
    """The volumes of one archive as one set of files."""

    def __init__(self, paths: list[Path]):
        self._paths = paths

    def __enter__(self):
        self._zips = []
        try:
            for path in self._paths:
                self._zips.append(zipfile.ZipFile(path))
            self._index()
        except (zipfile.BadZipFile, OSError) as error:
            self.__exit__(None, None, None)
            raise Invalid(f"{Path(path).name} is not a ZIP that can be read.") from error
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *error):
        for archive in self._zips:
            archive.close()

    def verify(self) -> None:
        """Every file is there, as long as the manifest says, with the same SHA-256."""
        for entry in self.manifest["files"]:
            digest, size = hashlib.sha256(), 0
            with self._open(entry["path"]) as file:
                while data := file.read(_READ):
                    digest.update(data)
                    size += len(data)
            if (size, digest.hexdigest()) != (entry["bytes"], entry["sha256"]):
                raise Invalid(f"{entry['path']} is not what the manifest says. The archive was changed or damaged.")

    def rows(self, key: str) -> Iterator[dict[str, Any]]:
        """The rows of a category, of all volumes, in order."""
        names = [entry["path"] for entry in self.manifest["files"] if _is_of(entry["path"], key)]
        for name in names:
            with self._open(name) as file:
                for line in file:
                    yield json.loads(line)

    def file(self, sha256: str, name: str) -> bytes:
        with self._open(archives.path_of(sha256, name)) as file:
            return file.read()

    def _index(self) -> None:
        self._where = {name: archive for archive in self._zips for name in archive.namelist()}
        if "manifest.json" not in self._where:
            raise Invalid("There is no manifest.json in these files. The last volume of the archive has it.")
        with self._open("manifest.json") as file:
            self.manifest = json.loads(file.read())
        if self.manifest.get("schema") != archives.SCHEMA:
            raise Invalid(f"This is not an archive of the form {archives.SCHEMA}.")
        if len(self._zips) != self.manifest["parts"]:
            raise Invalid(f"The archive has {self.manifest['parts']} volumes; give all of them.")

    def _open(self, name: str):
        try:
            return self._where[name].open(name)
        except KeyError:
            raise Invalid(f"The archive lacks {name}.") from None


def _is_of(path: str, key: str) -> bool:
    """data/items.jsonl and its continuations data/items.2.jsonl, ... belong to items."""
    head, _, tail = path.partition(f"data/{key}.")
    return not head and (tail == "jsonl" or (tail.removesuffix(".jsonl").isdigit() and tail.endswith(".jsonl")))
