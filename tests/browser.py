"""Pages in a real browser, if one is installed."""

import json
import re
import shutil
import subprocess

import pytest

needed = pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser is installed")


def shown(pages, measure, folder, widths=(390, 1280)):
    """Return what the JavaScript expression `measure` is on each page at each width, and the browser's complaints.

    A script is added to the pages, which are files below `folder`.
    """
    script = f'<script>addEventListener("load", () => parent.postMessage({measure}, "*"));</script></body>'
    for page in pages:
        page.write_text(page.read_text().replace("</body>", script))
    # A window has a least width of its own, a frame has not.
    frames = "".join(
        f'<iframe src="{page.relative_to(folder)}" width="{width}" style="border: 0"></iframe>'
        for page in pages
        for width in widths
    )
    listen = """const told = [];
      addEventListener("message", (event) => { told.push(event.data); document.title = JSON.stringify(told); });"""
    (folder / "frames.html").write_text(f"<!doctype html><title></title><script>{listen}</script>{frames}")
    found = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0",
         f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000", "--dump-dom",
         (folder / "frames.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    title = re.search("<title>(.*?)</title>", found.stdout)
    assert title is not None
    return json.loads(title[1]), found.stderr
