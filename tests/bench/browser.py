"""A page as a browser has it once its scripts have run."""

import re
import shutil
import subprocess
import tempfile
from html.parser import HTMLParser
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Before all else in the page: what goes wrong is counted where a dump of the document shows it.
WATCH = (
    "<script>window.addEventListener('error', e => { const n = document.documentElement;"
    "n.dataset.failures = (n.dataset.failures || '') + e.message + '; '; }, true);"
    "window.addEventListener('load', () => { document.documentElement.dataset.loaded = 'yes'; });</script>"
)


def find():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent, self.children, self.texts = tag, attributes, parent, [], []

    def all(self):
        yield self
        for child in self.children:
            yield from child.all()

    def with_class(self, name):
        return [element for element in self.all() if name in element.attributes.get("class", "").split()]

    def text(self):
        return "".join(self.texts)


class Document(HTMLParser):
    VOID = ("meta", "link", "br", "img", "input", "hr")

    def __init__(self, text):
        super().__init__()
        self.root = self.open = Element("", {}, None)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        element = Element(tag, {name: value or "" for name, value in attrs}, self.open)
        self.open.children.append(element)
        if tag not in self.VOID:
            self.open = element

    def handle_startendtag(self, tag, attrs):
        self.open.children.append(Element(tag, {name: value or "" for name, value in attrs}, self.open))

    def handle_endtag(self, tag):
        element = self.open
        while element.parent is not None and element.tag != tag:
            element = element.parent
        if element.parent is not None:
            self.open = element.parent

    def handle_data(self, data):
        element = self.open
        while element is not None:  # an element's text is that of what is in it too
            element.texts.append(data)
            element = element.parent

    def by_id(self, name):
        return next((element for element in self.root.all() if element.attributes.get("id") == name), None)


class Page:
    """`failures`: what scripts threw and what did not load; the empty text if all went well."""

    def __init__(self, html):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            path.write_text(html.replace("<head>", f"<head>{WATCH}", 1), encoding="utf-8")
            command = [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
            command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"]
            command += [f"--user-data-dir={folder}/profile", "--window-size=1300,1000", "--virtual-time-budget=20000"]
            command += ["--dump-dom", path.as_uri()]
            result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        if result.returncode:
            raise RuntimeError(f"{command[0]} exited with {result.returncode}: {result.stderr[-300:]}")
        self.document = Document(result.stdout)
        (html_element,) = [e for e in self.document.root.children if e.tag == "html"]
        self.failures = html_element.attributes.get("data-failures", "")
        self.loaded = html_element.attributes.get("data-loaded") == "yes"
        # A console message of a page: ...:ERROR:CONSOLE:12] "..."; others are the browser's own.
        self.console = re.findall(r"CONSOLE.*", result.stderr)
