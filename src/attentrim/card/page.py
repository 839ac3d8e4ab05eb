"""README.md as a YAML header and a Markdown body: changed key by key and section by section, all else as it was."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..atomic import write_text
from ..errors import AttentrimError
from ..guarded import MOST_YAML_BYTES, parse_yaml, read_text

HEADER = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


class Page:
    """The text of a card."""

    def __init__(self, text: str = "") -> None:
        text = text.removeprefix("\ufeff")
        self.header, self.body = "", text
        self.fields: dict[str, Any] = {}
        found = HEADER.match(text)
        if found is None:
            return
        try:
            fields = parse_yaml(found[1])
        except AttentrimError as error:
            raise AttentrimError("its header is not valid YAML") from error
        if fields is None or isinstance(fields, dict):  # a line across the page is a header's mark, too
            self.header, self.body, self.fields = found[1], text[found.end() :], fields or {}

    @classmethod
    def read(cls, path: Path) -> Page:
        try:
            return cls(read_text(path, MOST_YAML_BYTES))
        except AttentrimError as error:
            raise AttentrimError(f"{path} cannot be brought up to date: {error}.") from error

    def write(self, path: Path) -> None:
        """With the line ends that the file had."""
        windows = path.is_file() and b"\r\n" in path.read_bytes()
        write_text(path, str(self).replace("\n", "\r\n") if windows else str(self))

    def __str__(self) -> str:
        body = self.body.lstrip("\n")
        return f"---\n{self.header}---\n\n{body}" if self.header else body

    def set(self, name: str, value: Any) -> None:
        """Set a key of the header; None takes it away. Comments and other keys stay as they are written."""
        import yaml

        if self.fields.get(name) == value:
            return
        block = "" if value is None else yaml.safe_dump({name: value}, sort_keys=False, allow_unicode=True)
        there = re.search(rf"^{re.escape(name)}:.*\n(?:[ \t-].*\n|[ \t]*\n)*", self.header, re.MULTILINE)
        if there:
            self.header = self.header[: there.start()] + block + self.header[there.end() :]
        else:
            self.header += block
        self.fields[name] = value

    def fill(self, name: str, value: Any) -> None:
        """Set a key that has no value yet."""
        if value is not None and self.fields.get(name) is None:
            self.set(name, value)

    def put(self, sections: Mapping[str, str | None], order: Sequence[str]) -> None:
        """Replace, add (in this order) or take away marked sections."""
        for name in order:
            if name not in sections:
                continue
            body, found = sections[name], self._find(name)
            new = f"<!-- attentrim: {name} -->\n{body}\n<!-- /attentrim: {name} -->\n" if body else ""
            if found:
                before, after = self.body[: found[0]], self.body[found[1] :]
                self.body = before + (new or "") + (after if new else after.lstrip("\n"))
            elif body:
                self._insert(name, new, order)

    def has_title(self) -> bool:
        """Of someone's own."""
        ours = self._find("title")
        rest = self.body[: ours[0]] + self.body[ours[1] :] if ours else self.body
        return re.search(r"^# ", FENCE.sub("", rest), re.MULTILINE) is not None

    def section(self, name: str) -> str | None:
        """What a marked section says; None where there is none."""
        found = self._find(name)
        return self.body[slice(*found)] if found else None

    def _find(self, name: str) -> tuple[int, int] | None:
        """Where a section is: its marks on lines of their own, no other mark between them, and not in a code block."""
        pattern = rf"^<!-- attentrim: {name} -->\n(?:(?!<!-- /?attentrim: ).*\n)*?<!-- /attentrim: {name} -->(?:\n|\Z)"
        fenced = [code.span() for code in FENCE.finditer(self.body)]
        for found in re.finditer(pattern, self.body, re.MULTILINE):
            if not any(start < found.start() < end for start, end in fenced):
                return found.span()
        return None

    def _insert(self, name: str, new: str, order: Sequence[str]) -> None:
        if name == order[0]:
            self.body = f"{new}\n{self.body.lstrip(chr(10))}"
            return
        for earlier in reversed(order[: order.index(name)]):
            found = self._find(earlier)
            if found:
                rest = self.body[found[1] :].lstrip("\n")
                self.body = f"{self.body[: found[1]]}\n{new}" + (f"\n{rest}" if rest else "")
                return
        for later in order[order.index(name) + 1 :]:
            found = self._find(later)
            if found:
                self.body = f"{self.body[: found[0]]}{new}\n{self.body[found[0] :]}"
                return
        start = self.body.rstrip("\n")
        self.body = f"{start}\n\n{new}" if start else new
