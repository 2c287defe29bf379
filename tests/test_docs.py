"""What the documentation says is true: its code runs, its commands parse, its links lead somewhere."""

import copy
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import answers
from benchmarks import page as performance
from docs import tutorial

import browser
from pages import blocks
from roamax.cli import find, parse
from roamax.host import files

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS = {"pytorch": "torch"}
WITH_CODE = [path for path in PAGES if blocks(path, "python")]


@pytest.mark.parametrize(
    "page",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.extras] if path.stem in NEEDS else []) for path in WITH_CODE],
)
def test_the_code_of_a_page_runs_from_top_to_bottom_and_prints_what_the_page_shows(page, plain_jax, capsys):
    if page.stem in NEEDS:
        pytest.importorskip(NEEDS[page.stem])
    known = {}
    for number, code in enumerate(blocks(page, "python")):
        exec(compile(code, f"{page.name}, block {number}", "exec"), known)
    printed = capsys.readouterr().out.splitlines()
    for line in "\n".join(blocks(page, "output")).splitlines():
        assert any(alike(line, other) for other in printed), f"{line!r} in {page.name}; printed {printed}"


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def alike(shown, printed):
    """Whether two lines differ in their numbers alone, and in these by no more than machines do."""
    numbers = [[float(number) for number in NUMBER.findall(line)] for line in (shown, printed)]
    return NUMBER.sub("", shown) == NUMBER.sub("", printed) and numbers[1] == pytest.approx(numbers[0], 0.25, 0.01)


def test_the_tutorial_runs_and_shows_what_it_did(plain_jax):
    shown = tutorial.read()
    found = copy.deepcopy(shown)
    tutorial.run(found)
    for before, now in zip(tutorial.code_cells(shown), tutorial.code_cells(found), strict=True):
        assert [output["output_type"] for output in before["outputs"]] == [o["output_type"] for o in now["outputs"]]
        assert before["execution_count"] == now["execution_count"]


def test_the_readme_fits_a_narrow_page_and_uses_no_key_twice():
    for code in (ROOT / "README.md").read_text().split("```")[1::2]:
        assert max(map(len, code.splitlines())) <= 80, code
    for path in WITH_CODE:
        keys = re.findall(r"random\.key\((\d+)\)", "\n".join(blocks(path, "python")))
        assert len(keys) == len(set(keys)), path.name


def command_lines():
    for path in PAGES:
        for block in [*blocks(path, ""), *blocks(path, "text"), *blocks(path, "console")]:
            for line in block.splitlines():
                if line.startswith("roamax "):
                    yield pytest.param(line, id=f"{path.stem}: {line.split(' #')[0].strip()}")


@pytest.mark.parametrize("line", list(command_lines()))
def test_the_commands_of_a_page_parse(line):
    words = shlex.split(line, comments=True)[1:]
    words = words[: words.index(">")] if ">" in words else words
    assert callable(parse(*find(words)))


def test_make_knows_the_targets_that_pages_name():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in PAGES:
        for target in re.findall(r"^make ([a-z-]+)", path.read_text().replace("`make ", "\nmake "), re.MULTILINE):
            assert target in targets, f"make {target} in {path.name}"


def test_pages_of_measurements_are_made_from_their_numbers():
    folder = ROOT / "docs"
    assert (folder / "samplers.md").read_text() == answers.page(files.read_json(folder / "samplers.json"))
    written = performance.page_text(files.read_json(folder / "performance.json"), folder / "performance.md")
    assert (folder / "performance.md").read_text() == written


def test_a_page_begins_with_a_sentence():
    for path in PAGES[2:]:
        first = path.read_text().split("\n\n")[1]
        assert re.match(r"[A-Z0-9]|`\w", first), path.name


def test_links_between_files_lead_somewhere():
    for path in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
            if not target.startswith("http"):
                assert (path.parent / target).exists(), f"{target} in {path.name}"


def test_figures_and_examples_are_those_of_the_pages():
    assert (ROOT / "docs" / "images" / "overview.png").stat().st_size < 200_000
    for path in PAGES:
        for name in re.findall(r"examples/(\w+\.py)", path.read_text()):
            assert (ROOT / "examples" / name).exists(), f"{name} in {path.name}"


def test_the_tests_that_a_page_names_exist():
    named = [
        (path, *found) for path in PAGES for found in re.findall(r"`(?:tests/)?([\w/]+\.py)::(\w+)`", path.read_text())
    ]
    assert len(named) > 20
    for path, file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test} in {path.name}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder with the built site."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.extras
@browser.needed
def test_no_page_is_wider_than_a_phone(site):
    pages = sorted(site.glob("**/index.html"))
    found, _ = browser.shown(pages, "[location.pathname, innerWidth, document.body.scrollWidth]", site, widths=[390])
    assert len(found) == len(pages) > 20
    assert {width for _, width, _ in found} == {390}
    assert [(path, content) for path, width, content in found if content > width] == []


@pytest.mark.extras
def test_the_site_builds(site):
    names = ("cli", "concepts", "examples", "tutorial", "api/samplers")
    shown = {name: (site / name / "index.html").read_text() for name in names}
    assert "data:image/png;base64," in shown["tutorial"]
    assert re.search(r"<h2[^>]*>\s*roamax\.l2e\b", shown["api/samplers"])
    assert not re.search(r"<h\d[^>]*>[^<]*roamax\.samplers", shown["api/samplers"])
    assert "roamax meta-train smoke [-h]" in shown["cli"]
    assert shown["concepts"].count("<math") >= 6
    assert not re.search(r"<m[io]>(&amp;|&<|\\)", shown["concepts"]), (
        "a formula holds what could not be turned to MathML"
    )
    assert "own_sampler" in shown["examples"]
    front = (site / "index.html").read_text()
    assert "overview.png" in front
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="(https?:)?//', front), "it must work without a network"
