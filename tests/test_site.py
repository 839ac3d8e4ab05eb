"""The docs site: what docs/hooks.py makes of the pages; and the built site, where `--site` names it (make docs)."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import re
import threading
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from browsing import CHROMIUM, FLAGS, needs_browser

import attentrim
from attentrim.distillation import Distillation
from attentrim.methods import METHODS
from attentrim.options import current_fields
from attentrim.runs.settings import RunSettings

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)

URIS = {*hooks.FROM_ROOT.values(), "concepts.md", "how-to/serve.md", "how-to/resume.md", "map.svg"}


# The hooks


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("index.md", "[a](docs/concepts.md)", "[a](concepts.md)"),
        ("index.md", "[a](docs/how-to/serve.md#onnx)", "[a](how-to/serve.md#onnx)"),
        ("index.md", "[`a`\nb](RESULTS.md#heads)", "[`a`\nb](results/index.md#heads)"),
        ("results/index.md", "[a](docs/concepts.md) [b](README.md)", "[a](../concepts.md) [b](../index.md)"),
        ("how-to/serve.md", "[a](resume.md)", "[a](resume.md)"),
        ("how-to/serve.md", "[a](../../CHANGELOG.md)", "[a](../changelog.md)"),
        ("how-to/serve.md", "a [file](../../pyproject.toml) and [folder](../../tests)", "a file and folder"),
        ("index.md", "![a](docs/map.svg)", "![a](map.svg)"),
        ("index.md", "[![a](docs/map.svg)](docs/concepts.md)", "[![a](map.svg)](concepts.md)"),
        ("index.md", '<img src="docs/map.svg">', '<img src="map.svg">'),
        ("index.md", "[a](https://example.org/b.md) [b](#here)", "[a](https://example.org/b.md) [b](#here)"),
        ("index.md", "[a](docs/nowhere.md)", "[a](docs/nowhere.md)"),  # for the strict build to refuse
        ("index.md", "![a](pyproject.toml)", "![a](pyproject.toml)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(page, written, shown):
    assert hooks.relinked(written, page, URIS) == shown


def test_code_is_left_as_it_is():
    code = "```python\nhandlers[name](docs/concepts.md)\n```\n"
    page = SimpleNamespace(is_homepage=True, meta={}, file=SimpleNamespace(src_uri="index.md"))
    files = [SimpleNamespace(src_uri=uri) for uri in URIS]
    made = hooks.on_page_markdown(f"[a](docs/concepts.md)\n\n{code}[b](docs/concepts.md)", page, None, files)
    assert made == f"[a](concepts.md)\n\n{code}[b](concepts.md)"


def test_patterns_in_the_nav_take_what_is_not_named():
    nav = [{"Home": "index.md"}, {"Tasks": ["tasks/b.md", "tasks/*.md"]}, "*.md"]
    pages = ["index.md", "tasks/a.md", "tasks/b.md", "tasks/c.md", "tasks/deep/d.md", "other.md"]
    assert hooks.expanded(nav, pages) == [
        {"Home": "index.md"},
        {"Tasks": ["tasks/b.md", "tasks/a.md", "tasks/c.md"]},
        "other.md",
    ]


def test_the_reference_covers_every_public_name():
    pages = [path.read_text() for path in (ROOT / "docs" / "api").glob("*.md")]
    shown = set(re.findall(r"^::: attentrim\.(\w+)$", "\n".join(map(hooks.with_settings, pages)), flags=re.MULTILINE))
    assert set(attentrim.__all__) - shown == set()


@pytest.mark.parametrize("config", [*METHODS.loaded.values(), Distillation, RunSettings])
def test_tables_of_settings_say_what_each_setting_is(config):
    rows = {row.split("`")[1]: row for row in hooks.settings_table(config).splitlines()[2:]}
    expected = [entry for entry in current_fields(config) if "help" in entry.metadata]
    assert list(rows) == [entry.name for entry in expected]
    for entry in expected:
        assert entry.metadata["help"].replace("|", "\\|") in rows[entry.name]
        assert f"`{entry.default!r}`" in rows[entry.name]


@pytest.mark.parametrize("report", sorted((ROOT / "docs" / "gallery").glob("*.html")), ids=lambda path: path.stem)
def test_reports_of_the_gallery_are_small_and_name_no_place_of_a_machine(report):
    text = report.read_text()
    assert len(text) < 600_000
    assert f"]({report.name})" in (report.parent / "index.md").read_text()
    without_data = re.sub(r"[A-Za-z0-9+/=]{300,}", "", text)
    assert re.findall(r"(?<![\w.:/<])(?:/[\w.-]+){3,}|[A-Z]:\\", without_data) == []


# The built site


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a":
            self.links += [found["href"]] if found.get("href") else []
        else:
            self.loads += [found[name] for name in ("src", "href", "data") if found.get(name) and tag != "use"]


@pytest.fixture(scope="module")
def site(request):
    place = request.config.getoption("--site")
    if place is None:
        pytest.skip("the docs site is tested by `make docs`")
    return Path(place).resolve()


@pytest.fixture(scope="module")
def pages(site):
    # the page for what is not found has links from the root of a host that is not known
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def is_outside(address):
    return re.match(r"(https?:)?//", address) is not None


def test_every_link_leads_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            if is_outside(link) or re.match(r"(mailto|data|javascript):", link):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file.partition("?")[0]).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or not target.is_relative_to(site):
                broken.append(f"{path.relative_to(site)}: {link}")
            elif anchor and target in pages and anchor not in pages[target].ids:
                broken.append(f"{path.relative_to(site)}: {link} (no such anchor)")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert [f"{path.name}: {load}" for path, page in pages.items() for load in page.loads if is_outside(load)] == []
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text()), path.name


def test_pages_show_the_settings_of_methods(site):
    text = unescape(re.sub(r"<[^>]+>", "", (site / "api" / "methods.html").read_text()))
    for method in METHODS.loaded.values():
        assert method.__name__ in text
        for entry in method.setting_fields():
            assert " ".join(entry.metadata["help"].split()) in " ".join(text.split())


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def browser(site):
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_pages_load_cleanly_in_a_browser(site, pages, address, browser, width, scheme):
    """No line on the console, nothing fetched from elsewhere, nothing wider than the window."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said = []
    tab.on("console", lambda message: said.append(f"{tab.url}: {message.text}"))
    tab.on("pageerror", lambda error: said.append(f"{tab.url}: {error}"))
    tab.on("response", lambda answer: answer.status < 400 or said.append(f"{tab.url}: {answer.status} {answer.url}"))
    tab.on("request", lambda sent: sent.url.startswith((address, "data:")) or said.append(f"{tab.url}: {sent.url}"))
    for path in pages:
        tab.goto(address + path.relative_to(site).as_posix())
        if tab.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            said.append(f"{tab.url}: wider than {width} pixels")
    assert said == []


@needs_browser
def test_search_finds_a_setting(address, browser):
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(address + "index.html")
    tab.fill("input.md-search__input", "target_sparsity")
    tab.wait_for_selector(".md-search-result__item a", timeout=60_000)
    assert "target_sparsity" in tab.inner_text(".md-search-result__list").lower()
