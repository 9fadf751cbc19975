"""Profiles for pprof: gzipped protocol buffers of the message perftools.profiles.Profile.

The numbers and types of the fields are those of profile.proto (github.com/google/pprof). All values are estimates of the
truth already, so no reader has to scale them.
"""

from __future__ import annotations

import functools
import gzip
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sheaf.commands.profile.symbols import Frame, Symbolizer
from sheaf.commands.profile.views import Profile

_PACKAGE = "perftools.profiles"
# Name, number and type of each field; a type in capitals is a message, and * means repeated.
_MESSAGES = {
    "Profile": "sample_type 1 *ValueType, sample 2 *Sample, mapping 3 *Mapping, location 4 *Location, function 5 *Function, "
    "string_table 6 *string, drop_frames 7 int64, keep_frames 8 int64, time_nanos 9 int64, duration_nanos 10 int64, "
    "period_type 11 ValueType, period 12 int64, comment 13 *int64, default_sample_type 14 int64",
    "ValueType": "type 1 int64, unit 2 int64",
    "Sample": "location_id 1 *uint64, value 2 *int64, label 3 *Label",
    "Label": "key 1 int64, str 2 int64, num 3 int64, num_unit 4 int64",
    "Mapping": "id 1 uint64, memory_start 2 uint64, memory_limit 3 uint64, file_offset 4 uint64, filename 5 int64, "
    "build_id 6 int64, has_functions 7 bool, has_filenames 8 bool, has_line_numbers 9 bool, has_inline_frames 10 bool",
    "Location": "id 1 uint64, mapping_id 2 uint64, address 3 uint64, line 4 *Line, is_folded 5 bool",
    "Line": "function_id 1 uint64, line 2 int64, column 3 int64",
    "Function": "id 1 uint64, name 2 int64, system_name 3 int64, filename 4 int64, start_line 5 int64",
}


@functools.cache
def message() -> Any:
    """The class of the message Profile."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sheaf/profile.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field in fields.split(", "):
            word, number, kind = field.split()
            one = described.field.add(name=word, number=int(number))
            one.label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            one.type = kinds.TYPE_MESSAGE if kind in _MESSAGES else getattr(kinds, f"TYPE_{kind.upper()}")
            if kind in _MESSAGES:
                one.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))


class _Writer:
    """Fills the message; strings, mappings, locations and functions appear once each."""

    def __init__(self, profile: Profile, symbolizer: Symbolizer) -> None:
        self.profile, self.symbolizer = profile, symbolizer
        self.message = message()()
        self._strings = {"": 0}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[int | str, int] = {}
        self._mappings: dict[int, Any] = {}

    def string(self, text: str) -> int:
        """The index of a string."""
        return self._strings.setdefault(text.encode("utf-8", "replace").decode(), len(self._strings))

    def _function(self, frame: Frame) -> int:
        key = frame.function, frame.file
        if key not in self._functions:
            number = self._functions[key] = len(self._functions) + 1
            name = self.string(frame.function)
            self.message.function.add(id=number, name=name, system_name=name, filename=self.string(frame.file))
        return self._functions[key]

    def mappings(self) -> None:
        """The modules of the process. The first one that pprof shows should be the program itself."""
        snapshot = self.profile.snapshot
        for module in sorted(snapshot.modules, key=lambda one: not one.path.endswith(f"/{snapshot.program}")):
            number = len(self._mappings) + 1
            # `start` is where the object begins, which is its offset 0.
            self._mappings[module.start] = self.message.mapping.add(
                id=number,
                memory_start=module.start,
                memory_limit=module.end,
                filename=self.string(module.path or "[vdso]"),
                build_id=self.string(module.build_id.hex()),
            )

    def _location(self, pc: int) -> int:
        if pc not in self._locations:
            number = self._locations[pc] = len(self._locations) + 1
            module, frames = self.symbolizer.module(pc), self.symbolizer.frames(pc)
            mapping = self._mappings[module.start] if module else None
            location = self.message.location.add(id=number, address=pc - 1, mapping_id=mapping.id if mapping else 0)
            for frame in frames if any(frame.known for frame in frames) else ():
                location.line.add(function_id=self._function(frame), line=frame.line)
                if mapping:
                    mapping.has_functions = True
                    mapping.has_filenames |= bool(frame.file)
                    mapping.has_line_numbers |= bool(frame.line)
                    mapping.has_inline_frames |= frame.inlined
        return self._locations[pc]

    def _named(self, name: str) -> int:
        """A location that has no address, only a name."""
        if name not in self._locations:
            number = self._locations[name] = len(self._locations) + 1
            frame = Frame(name, "", 0, "", False)
            self.message.location.add(id=number).line.add(function_id=self._function(frame))
        return self._locations[name]

    def samples(self) -> None:
        """A sample for each row; labels become frames and, for filters, labels. So do figures that are unreliable."""
        for row in self.profile.rows:
            frames = self.symbolizer.stack(row) if not row.pcs else []
            places = [self._location(pc) for pc in self.symbolizer.shown(row.pcs)]
            places += [self._named(label) for label in reversed(row.labels)]
            places = places or [self._named(frame.function) for frame in frames]
            sample = self.message.sample.add(location_id=places, value=[round(value) for value in row.values])
            for label in row.labels:
                sample.label.add(key=self.string(self.profile.view), str=self.string(label))
            if self.profile.unreliable(row):
                sample.label.add(key=self.string("estimate"), str=self.string("unreliable"))

    def head(self) -> None:
        """Sample types, times and comments."""
        profile, add = self.profile, self.message
        for column in profile.columns:
            add.sample_type.add(type=self.string(column.name), unit=self.string(column.unit))
        add.default_sample_type = self.string(profile.columns[profile.main].name)
        add.period_type.type, add.period_type.unit = self.string("space"), self.string("bytes")
        add.period, add.time_nanos, add.duration_nanos = profile.period, profile.time_ns, profile.duration_ns
        snapshot = profile.snapshot
        comments = [f"{snapshot.who}: {profile.title}", *profile.notes, *self.symbolizer.notes]
        add.comment.extend(self.string(comment) for comment in comments)

    def finish(self) -> bytes:
        self.message.string_table.extend(self._strings)
        return bytes(self.message.SerializeToString())


def dump(profile: Profile, symbolizer: Symbolizer) -> bytes:
    """The profile as a gzipped message."""
    symbolizer.prepare(profile.pcs)
    writer = _Writer(profile, symbolizer)
    writer.mappings()
    writer.samples()
    writer.head()
    return gzip.compress(writer.finish(), mtime=0)
