"""Make the site and the printed book: execute chapters by Papermill, build a site from the checkout
or a staged copy, publish a machine's rows, and show the first figure in the README."""

from __future__ import annotations

import errno
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

import nbformat
import papermill
from jupyter_client import AsyncKernelClient, AsyncKernelManager
from jupyter_core.utils import run_sync

from tlb.machine import host
from tlb.measure import machine_states
from tlb.measure.row_database import DATABASE_FILE, DATABASE_LOG_FILES, RowDatabase
from tlb.measure.store import Store, data_root
from tlb.report import article, card, notebooks, page
from tlb.report.answers import ANSWERS_DOCUMENT
from tlb.report.notebooks import BOOK_FOLDER, chapter_names_in_order
from tlb.report.quantities import QUANTITIES_DOCUMENT
from tlb.system.files import (
    ROOT,
    disk_errors_as_unavailable,
    measuring_lock,
    put_folder,
    recover_folder,
)
from tlb.system.reasons import Unavailable, none_if_unavailable

# jupyter_book cannot be run by `-m`, and its script need not be on the PATH.
_JUPYTER_BOOK = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
# Warnings are errors, a missing reference is a warning, and all of them are shown at once.
_STRICT = ["-W", "-n", "--keep-going"]
# What a site is built from: its settings, its pages, and the sources that its listings show.
_STAGED = ("_config.yml", "_toc.yml", "book", "kernels", "tlb", "experiments")
# The first two change with each look at the computer; answers follow from rows and sources.
_NOT_SOURCES = ("machine.json", "lacking.json", f"{ANSWERS_DOCUMENT}.json", *DATABASE_LOG_FILES)
# What pages write beside this computer's rows, and so no input of theirs.
_MADE_OF_OWN_ROWS = (f"{QUANTITIES_DOCUMENT}*.json", "translation.json", "README.md")
_CAPTION_LEAD = "*In the published figure:*"  # before a caption, over another machine's marks


class SiteError(SystemExit):
    """The site did not build; the message holds what Jupyter Book printed."""


# --- the site


def stage(source: Path, *ignored: str) -> None:
    """Copy what a site is built from into a new folder, except for names that match `ignored`."""
    ignore = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__", *ignored)
    for name in _STAGED:
        path, copy = ROOT / name, source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, copy, ignore=ignore) if path.is_dir() else shutil.copy(path, copy)


def build_site(source: Path, output: Path, builder: str = "html", *, is_whole: bool = True) -> Path:
    """Build `source` (_config.yml, _toc.yml, book/) into `output`/_build/`builder`; return its
    index.html.

    Always from nothing: pages show numbers of each other, so a kept page can be out of date, and
    two builds of one source must be the same bytes. An earlier site can be read until the new one
    takes its place. is_whole: whether a link to something that is not there is an error. Raises
    SiteError and Unavailable("disk-refused").
    """
    for needed in ("_config.yml", "_toc.yml"):
        if not (source / needed).is_file():
            raise SiteError(f"{source} holds no {needed}; build from the root of the book's source")
    making = output / "_build" / "making"
    new, html = making / "_build" / builder, output / "_build" / builder
    shutil.rmtree(new, ignore_errors=True)
    where = [str(source), "--path-output", str(making), "--builder", builder]
    command = [*_JUPYTER_BOOK, "build", *where, "--all", "-q"]
    if is_whole:
        command += _STRICT
    plain = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=plain)
    if done.returncode or not (new / "index.html").exists():
        printed = f"{done.stdout}{done.stderr}".rstrip()
        if (full := os.strerror(errno.ENOSPC)) in printed:
            raise Unavailable("disk-refused", f"{new}: {full}")
        raise SiteError(f"the site did not build; Jupyter Book printed:\n{printed}")
    with disk_errors_as_unavailable(html):
        recover_folder(html, aside := html.with_name(f".{builder}.old"))
        put_folder(new, html, aside)
    return html / "index.html"


# --- executed chapters


class Kernel(AsyncKernelManager):
    """A Jupyter kernel for one notebook after the other, which saves all but the first the imports
    and the reading of the same rows."""

    _client: AsyncKernelClient | None = None

    # Its base class declares a blocking client, and makes an asynchronous one.
    def client(self, **given: Any) -> AsyncKernelClient:  # type: ignore[override]
        """Return a new client, as Papermill requests with each notebook."""
        self._client = super().client(**given)
        return self._client

    async def _forget(self) -> None:
        """Leave nothing to the next notebook: no name, no client's threads."""
        if self._client:
            await self._client.execute(_FORGET, silent=True, reply=True, timeout=_PATIENCE_S)
            self._client.stop_channels()
            self._client = None

    forget = run_sync(_forget)


# Deletes public names and restarts the count of cells. What is left, modules above all, is frozen: to
# look through all of it for garbage takes a second, with each page and several times within one.
_FORGET = "get_ipython().reset(); __import__('gc').freeze()"
_PATIENCE_S = 600.0  # for a kernel to start or to answer, on a busy machine too


@contextmanager
def kernel() -> Iterator[Kernel]:
    """Run a kernel, and kill it in the end.

    It listens on sockets in a private folder, not on ports, which all users reach. The folder's
    path is short, as that of a socket must be.
    """
    with tempfile.TemporaryDirectory(prefix="tlb-") as sockets:
        made = Kernel(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        try:
            options = ["--IPKernelApp.log_level=50", "--HistoryManager.hist_file=:memory:"]
            run_sync(made.start_kernel)(cwd=str(BOOK_FOLDER), extra_arguments=options)
            yield made
        finally:
            if made.has_kernel:
                run_sync(made.shutdown_kernel)(now=True)


def execute(
    chapter: str, output: Path, given: Mapping[str, Any], within: Kernel | None = None
) -> None:
    """Run a chapter through Papermill in its own folder, in `within` or in a kernel of its own.

    Progress goes to stderr. Raises Unavailable for a bad parameter, and SystemExit for what the
    chapter itself raised.
    """
    notebooks.check_parameters(chapter, given)
    page.check(chapter)
    if within is None:
        with kernel() as within:
            return execute(chapter, output, given, within)
    try:
        with disk_errors_as_unavailable(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            papermill.execute_notebook(
                BOOK_FOLDER / f"{chapter}.ipynb",
                output,
                dict(given),
                progress_bar=False,
                request_save_on_cell_execute=False,  # twice a cell: a third of a book's CPU time
                start_timeout=_PATIENCE_S,
                stderr_file=sys.stderr,
                kernel_name="python3",
                km=within,
            )
    except papermill.PapermillExecutionError as error:
        within.forget()
        if error.ename in ("Unavailable", "PageError") and error.evalue:
            raise SystemExit(error.evalue) from None
        raise SystemExit(
            f"cell {error.exec_count} of {chapter}.ipynb: {error.ename}: {error.evalue}"
        ) from error
    within.forget()
    return None


def each(run: Callable[[str, Kernel], object], *groups: Iterable[str]) -> None:
    """Run chapters that measure nothing, two at a time, one group after the other; the first that
    fails ends them all, as Ctrl-C does."""
    kernels: SimpleQueue[Kernel] = SimpleQueue()

    def one(chapter: str) -> None:
        within = kernels.get()
        try:
            run(chapter, within)
        finally:
            kernels.put(within)

    # Kernels end before the threads are joined.
    with ThreadPoolExecutor(2) as pool, kernel() as first, kernel() as second:
        kernels.put(first)
        kernels.put(second)
        for chapters in groups:
            for _ in pool.map(one, chapters):
                pass


def refresh(chapter: str) -> Path:
    """Execute a chapter on the committed results, put its outputs into book/ and return its path.

    With the first page, the README's figure is updated too.
    """
    path, data = BOOK_FOLDER / f"{chapter}.ipynb", Store(data_root())
    reference = data.resolve("reference", experiment=chapter)
    # The reference first: each page's text is about its quantities, some of which may be new
    machines = sorted(data.machines(), key=lambda machine: machine != reference)
    with tempfile.TemporaryDirectory() as folder, kernel() as within:
        for machine in machines if records_quantities(chapter) else ():
            done = Path(folder) / f"{machine}.ipynb"
            execute(chapter, done, {"machine": machine}, within)
            keep_quantities(data, machine, done)
        execute(chapter, done := Path(folder) / path.name, {}, within)
        keep_quantities(data, reference, done)
        notebook = nbformat.read(done, as_version=4)
    for part in (notebook, *notebook.cells):  # when and for how long it ran
        part.metadata.pop("papermill", None)
        part.metadata.pop("execution", None)
    with disk_errors_as_unavailable(path):
        nbformat.write(notebook, path)
    if chapter == chapter_names_in_order()[0]:
        _refresh_readme()
    return path


def refresh_quantities(machine: str) -> None:
    """Execute all chapters that record quantities about a published machine, and keep these."""
    data, chapters = Store(data_root()), filter(records_quantities, chapter_names_in_order())
    with tempfile.TemporaryDirectory() as folder, kernel() as within:
        for chapter in chapters:
            done = Path(folder) / f"{chapter}.ipynb"
            execute(chapter, done, {"machine": machine}, within)
            keep_quantities(data, machine, done)


def records_quantities(chapter: str) -> bool:
    """Return whether a page is executed about each machine, for the quantities that it records
    there: a chapter, or the first page."""
    return chapter in (chapter_names_in_order()[0], *notebooks.measured_chapters())


def keep_own_quantities(executed: Path) -> None:
    """Keep what a page recorded of this computer beside its own rows, its quantities also as those
    of its present state, where `tlb compare` reads them."""
    own, this = Store(data_root()).own, host.inspect_machine()
    name = host.machine_id(this)
    keep_quantities(own, name, executed)
    _keep(
        own,
        name,
        f"{QUANTITIES_DOCUMENT}-{host.state_digest(this)}",
        _recorded(executed, QUANTITIES_DOCUMENT),
    )


def keep_quantities(store: Store, machine: str, executed: Path) -> None:
    """Keep what an executed page recorded of a machine beside its rows: its quantities, and its
    answers to claims."""
    for kind in (QUANTITIES_DOCUMENT, ANSWERS_DOCUMENT):
        _keep(store, machine, kind, _recorded(executed, kind))


def _recorded(executed: Path, kind: str) -> dict[str, Any]:
    return article.recorded(json.loads(executed.read_text(encoding="utf-8")), kind)


def _keep(store: Store, machine: str, document: str, recorded: Mapping[str, Any]) -> None:
    if recorded:
        kept = none_if_unavailable(store.read_document, machine, document) or {}
        store.write_document(machine, document, {**kept, **recorded})


# --- a machine's book


@dataclass(frozen=True)
class Book:
    """A machine's site. index: its first page. failed: for each page that could not be made, the
    notebook, its cell and the error."""

    index: Path
    failed: tuple[str, ...] = ()


def book(given: Mapping[str, Any]) -> Book:
    """Execute every chapter about `given["machine"]` on existing rows, and build the site. A page
    whose inputs are those of the last time is not executed again, nor a site built again.

    A notebook that fails is named on stderr and replaced by a page that says so.
    """
    given = {**given, "minutes": 0.0}
    this = host.inspect_machine()
    name = given["machine"] if given["machine"] != "this" else host.machine_id(this)
    place = ROOT / "_build" / name
    source, built_of = place / "source", place / "built-of"
    index = place / "site" / "_build" / "html" / "index.html"
    asked = json.dumps([given, host.state_digest(this)], sort_keys=True, default=str)
    digests = {"": asked, **_digests()}
    made_of = _digest(digests)
    if index.is_file() and built_of.is_file() and built_of.read_text() == made_of:
        return Book(index)
    pages = {page: _digest(_inputs(page, digests)) for page in chapter_names_in_order()}
    failed = _execute_pages(given, place / "pages", pages)
    with disk_errors_as_unavailable(source):
        built_of.unlink(missing_ok=True)
        shutil.rmtree(source, ignore_errors=True)
        stage(source, "*.ipynb")
        for page in pages:
            shutil.copy(place / "pages" / f"{page}.ipynb", source / "book")
    index = build_site(source, place / "site", is_whole=not failed)
    if not failed:
        with disk_errors_as_unavailable(built_of):
            built_of.write_text(made_of)
    return Book(index, tuple(failed))


def _execute_pages(given: Mapping[str, Any], folder: Path, inputs: Mapping[str, str]) -> list[str]:
    """Execute every page into a folder whose inputs have another digest than those of the page
    there, and return why pages failed. Chapters come first, and then the first page: the others
    show the quantities and answers to claims that these keep beside this computer's rows."""
    failed: list[str] = []
    keeping = Lock()

    def execute_page(name: str, within: Kernel) -> None:
        done, made_of = folder / f"{name}.ipynb", folder / f"{name}.made-of"
        made_of.unlink(missing_ok=True)
        try:
            execute(name, done, given, within)
        except SystemExit as error:
            why = f"{name}: {error}"
            failed.append(why)
            print(why, file=sys.stderr)
            _say_failed(name, done, why)
            return
        if given["machine"] == "this":
            with keeping:
                keep_own_quantities(done)
        with disk_errors_as_unavailable(made_of):
            show_given(done, notebooks.check_parameters(name, given))
            if records_quantities(name):
                lead_captions(done, name)
            made_of.write_text(inputs[name])

    def is_new(name: str) -> bool:
        made_of, done = folder / f"{name}.made-of", folder / f"{name}.ipynb"
        return not (done.is_file() and made_of.is_file() and made_of.read_text() == inputs[name])

    changed = list(filter(is_new, inputs))
    if changed:
        each(execute_page, *in_turns(changed))
    return failed


def in_turns(pages: Sequence[str]) -> list[list[str]]:
    """Divide pages into groups of which each may read what those before it record."""
    chapters = list(filter(is_chapter, pages))
    others = [name for name in pages if name not in chapters]
    first = list(filter(records_quantities, others))
    return [chapters, first, [name for name in others if name not in first]]


def _say_failed(chapter: str, path: Path, error: str) -> None:
    """Write a page in place of one that failed, under its title."""
    title = page.notebook_cells(chapter)[0].source.splitlines()[0]
    words = f"{title}\n\nThis page could not be made for this computer:\n\n```\n{error}\n```"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(words)])
    nbformat.write(notebook, path)


def _inputs(chapter: str, digests: Mapping[str, str]) -> dict[str, str]:
    """Return, of the digests of all files, those of what a page follows from: code, published data,
    its own notebook, and the rows of this computer except for a re-run of a source. A page that is
    no chapter may show any other."""
    is_rerun, others = notebooks.is_rerun(chapter), set[str]()
    if is_chapter(chapter):
        others = {f"book/{name}.ipynb" for name in chapter_names_in_order() if name != chapter}
    return {
        name: digest
        for name, digest in digests.items()
        if name not in others and not (is_rerun and name.startswith("data/own/"))
    }


def is_chapter(name: str) -> bool:
    """Return whether a page is about an experiment or a re-run, not about all of them."""
    return notebooks.is_rerun(name) or name in notebooks.measured_chapters()


def _digests() -> dict[str, str]:
    """Return a digest of each file that a site is made of, by its path; of the data, wherever they
    are, by that below data/."""
    found: dict[str, str] = {}
    for name, top in {**{name: ROOT / name for name in _STAGED}, "data": data_root()}.items():
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            is_made = path.name in _NOT_SOURCES or any(
                path.match(f"own/*/{name}") for name in _MADE_OF_OWN_ROWS
            )
            if path.is_file() and path.suffix != ".pyc" and not is_made:
                is_open = path.name == DATABASE_FILE
                content = RowDatabase(path).digest() if is_open else _sha256(path)
                found[Path(name, path.relative_to(top)).as_posix()] = content.hex()
    return found


def _digest(digests: Mapping[str, str]) -> str:
    """Return 16 hex digits of these names and digests."""
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()[:16]


def _sha256(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def show_given(path: Path, given: Mapping[str, Any]) -> None:
    """Show the parameters of its run on an executed page, without Papermill's own cell."""

    def set_value(line: re.Match[str]) -> str:
        return f"{line[1]}{line[2]}{json.dumps(given[line[1]])}"

    notebook, cells = nbformat.read(path, as_version=4), []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if "parameters" in tags:
            cell.source = re.sub(r"(?m)^(\w+)(: \w+ = )(\S+)", set_value, cell.source)
        if "injected-parameters" not in tags:
            cells.append(cell)
    notebook.cells = cells
    nbformat.write(notebook, path)


def lead_captions(path: Path, chapter: str) -> None:
    """Let the captions of an executed page say that they are of the published figures, where it
    shows another machine's: they name what those show."""
    notebook = nbformat.read(path, as_version=4)
    committed = nbformat.read(BOOK_FOLDER / f"{chapter}.ipynb", as_version=4)
    known = {html for cell in committed.cells for html in _shown_html(cell)}
    for cell in notebook.cells:
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        is_own = any(
            html not in known and article.shows_its_machine(html) for html in _shown_html(cell)
        )
        if is_own and "caption" in figure:
            figure["caption"] = f"{_CAPTION_LEAD} {figure['caption']}"
    nbformat.write(notebook, path)


def _shown_html(cell: Any) -> list[str]:
    """Return what a cell's outputs show, as HTML."""
    outputs = (output.get("data", {}) for output in cell.get("outputs", ()))
    return ["".join(data["text/html"]) for data in outputs if "text/html" in data]


def rows(machine: str = "this") -> Path:
    """Add what was measured here of `machine` to what data/ has published of it; return its folder.

    Prints to stderr which documents belong to another state of the machine than all rows. Raises
    Unavailable: no-data as `machine_states.publish` does, measuring-already during a measurement.
    """
    store = Store(data_root())
    name = host.machine_id(host.inspect_machine()) if machine == "this" else machine
    with measuring_lock():
        folder = machine_states.publish(store, name)
        card.write(store, name, host.Host.model_validate(store.read_machine(name)))
    for document, state in machine_states.documents_of_another_state(store, name).items():
        print(
            f"{document} was measured in the state {state} of {name}, which no row is of; its page "
            "says so. Measure it again.",
            file=sys.stderr,
        )
    return folder


# --- the first figure of the first page, which the README and links to the book show

README_FIGURE = ".github/first_figure.svg"
_FIGURE = re.compile(
    r'<div class="tlb-chart" role="img" aria-label="([^"]*)">(<svg [^>]*>)(.*?</svg>)', re.DOTALL
)
_PAPER = '<rect width="100%" height="100%" fill="#fff"/>'  # no style sheet repaints it in the dark
_SHOWN = re.compile(rf"!\[[^]]*\]\({re.escape(README_FIGURE)}\)")


def first_figure_of(page: Path) -> tuple[str, str]:
    """Return (alternative text, SVG on white) of a notebook's first figure. Raises LookupError."""
    for cell in nbformat.read(page, as_version=4).cells:
        for output in cell.get("outputs", []):
            if found := _FIGURE.search("".join(output.get("data", {}).get("text/html", ""))):
                return html.unescape(found[1]), f"{found[2]}{_PAPER}{found[3]}\n"
    raise LookupError(f"{page.name} shows no figure")


def first_figure() -> tuple[str, str]:
    """Return (Markdown for the README, SVG) of the first page's first figure."""
    words, svg = first_figure_of(BOOK_FOLDER / f"{chapter_names_in_order()[0]}.ipynb")
    return f"![{words}]({README_FIGURE})", svg


def _refresh_readme() -> None:
    """Update the figure and its text in the README."""
    words, svg = first_figure()
    readme = ROOT / "README.md"
    with disk_errors_as_unavailable(readme):
        (ROOT / README_FIGURE).write_text(svg, encoding="utf-8")
        text = readme.read_text(encoding="utf-8")
        readme.write_text(_SHOWN.sub(lambda _: words, text), encoding="utf-8")


# --- the printed book: Sphinx's page of all chapters, printed by Chromium with book/assets/print.css

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # the page is ours
    "--disable-gpu",
    "--no-pdf-header-footer",  # which would name the local file
    "--generate-pdf-document-outline",
    "--virtual-time-budget=60000",  # until scripts have drawn the figures
)


def pdf(output: Path) -> Path:
    """Print the book of the committed results into `output` and return its path.

    Raises SystemExit without Chromium or if it fails, SiteError if the book does not build.
    """
    chromium = shutil.which("chromium")
    if not chromium:
        raise SystemExit(
            "Printing needs Chromium (Debian, Ubuntu: apt install chromium fonts-liberation)."
        )
    with disk_errors_as_unavailable(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        html = build_site(ROOT, Path(folder), "singlehtml").parent
        # Sphinx writes its links as from the root, where index.html only leads to this page.
        page = (html / "book" / "index.html").replace(html / "book.html")
        page.write_text(_unfolded(page.read_text(encoding="utf-8")), encoding="utf-8")
        command = [chromium, *_FLAGS, f"--print-to-pdf={output.resolve()}", page.as_uri()]
        printed = subprocess.run(command, capture_output=True, text=True)
    if printed.returncode or not output.is_file():
        raise SystemExit(f"Chromium could not print the book:\n{printed.stderr}".rstrip())
    return output


def _unfolded(page: str) -> str:
    """Return HTML with all of its folds open, for paper."""
    return re.sub(r"<details(?![^>]*\sopen\b)", "<details open", page)
