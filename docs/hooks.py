"""What the site needs beyond MkDocs: pages from the root of the repository, patterns in the nav, tables of settings.

Pages are written for a Git host: links are relative to the file, and may lead to files that are not on the site.
"""

from __future__ import annotations

import fnmatch
import importlib
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FROM_ROOT = {
    "README.md": "index.md",
    "RESULTS.md": "results/index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the repository, and the pages that they become."""
FENCED = re.compile(r"(^ *```.*?^ *```)", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
ATTRIBUTE = re.compile(r'\b(src|srcset)="([^"#:]+)"')
METHODS = "<!-- methods -->"
WITHOUT_FIELDS = """    options:
      members: false
      show_signature: false
      separate_signature: false"""
COMMENT = re.compile(r"<!--.*?-->", flags=re.DOTALL)
SETTINGS = re.compile(r"<!-- settings of (\S+):(\S+) -->")


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, page in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    config.nav = expanded(config.nav, [file.src_uri for file in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # it would hold this page alone
    uris = {file.src_uri for file in files}
    parts = FENCED.split(with_settings(markdown))
    # comments go: at the start of a line they would end a list or a paragraph
    parts[::2] = [relinked(COMMENT.sub("", part), page.file.src_uri, uris, config.repo_url) for part in parts[::2]]
    return "".join(parts)


def expanded(nav: list[Any], pages: list[str]) -> list[Any]:
    """The nav with each pattern replaced by the pages that match it and are not named elsewhere."""
    named = set(_leaves(nav))

    def expand(entry: Any) -> list[Any]:
        if isinstance(entry, dict):
            ((title, part),) = entry.items()
            return [{title: _each(expand, part) if isinstance(part, list) else part}]
        if "*" not in entry:
            return [entry]
        found = [page for page in sorted(pages) if page not in named and _matches(page, entry)]
        named.update(found)
        return found

    return _each(expand, nav)


def _each(expand: Any, entries: list[Any]) -> list[Any]:
    return [found for entry in entries for found in expand(entry)]


def _leaves(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    return [leaf for part in (entry.values() if isinstance(entry, dict) else entry) for leaf in _leaves(part)]


def _matches(page: str, pattern: str) -> bool:
    return page.count("/") == pattern.count("/") and fnmatch.fnmatch(page, pattern)


def relinked(markdown: str, page: str, uris: set[str], repository: str | None = None) -> str:
    """With links from this page to others as they lie on the site.

    A link to another file leads to the repository, or becomes text where nobody said where that is (`repo_url`).
    """
    sources = {f"docs/{uri}": uri for uri in uris} | FROM_ROOT
    here = next((name for name, uri in FROM_ROOT.items() if uri == page), f"docs/{page}")

    def place(target: str) -> tuple[str, str | None]:
        """In the repository, and from here on the site."""
        source = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        uri = sources.get(source)
        return source, uri and posixpath.relpath(uri, posixpath.dirname(page) or ".")

    def link(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        text = LINK.sub(link, text)
        source, found = place(target)
        if found is not None:
            return f"{image}[{text}]({found}{anchor or ''})"
        if image or not (ROOT / source).exists():
            return match[0]  # for the build to warn of
        return f"[{text}]({repository.rstrip('/')}/blob/HEAD/{source}{anchor or ''})" if repository else text

    def attribute(match: re.Match[str]) -> str:
        return f'{match[1]}="{place(match[2])[1] or match[2]}"'

    return ATTRIBUTE.sub(attribute, LINK.sub(link, markdown))


def with_settings(markdown: str) -> str:
    """With the places marked for them filled from the classes themselves."""
    if METHODS in markdown:
        methods = importlib.import_module("attentrim.methods").METHODS
        markdown = markdown.replace(METHODS, "\n\n".join(method_section(method) for method in methods.loaded.values()))
    return SETTINGS.sub(lambda match: settings_table(getattr(importlib.import_module(match[1]), match[2])), markdown)


def method_section(method: Any) -> str:
    page = f"On the command line: `--method {method.name}`. [How it works](../methods/{method.name}.md)."
    return f"::: attentrim.{method.__name__}\n{WITHOUT_FIELDS}\n\n{page}\n\n{settings_table(method)}"


def settings_table(config: Any) -> str:
    """Of a dataclass whose fields have a help text."""
    options = importlib.import_module("attentrim.options")
    rows = ["| setting | default | what it is |", "|---|---|---|"]
    for entry in options.current_fields(config):
        if "help" in entry.metadata:
            rule = entry.metadata.get("rule")
            meaning = entry.metadata["help"] + (f" ({rule.text})" if rule else "")
            default = f"`{entry.default!r}`" if isinstance(entry.default, bool | int | float | str | None) else ""
            cells = (f"`{entry.name}`<br><small>{entry.type}</small>", default, meaning)
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)
