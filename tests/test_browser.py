"""Notebook 05 in JupyterLab in a real browser: run it, move a slider, see decision and plot change.

Skipped where no Chromium with its driver is installed (on Debian: chromium, chromium-driver).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest
from notebook_runs import NOTEBOOKS, ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
WAIT_S = 120
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no browser: install chromium and chromium-driver")


@pytest.fixture
def lab(tmp_path) -> Iterator[str]:
    """Address of notebook 05 in a JupyterLab of its own."""
    shutil.copy(NOTEBOOKS / "05_read_the_evidence.ipynb", tmp_path)
    settings = tmp_path / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # Every cell stays in the page, so that what ran below the fold can be looked at.
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"MEMSTRAT_RESULTS_DIR": str(tmp_path / "results"), "PYTHONPATH": str(ROOT),
                                "MEMSTRAT_WORK": str(tmp_path / "my_work")}
    log = open(tmp_path / "lab.log", "w")
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}", "--ip=127.0.0.1",
         "--IdentityProvider.token=", f"--ServerApp.root_dir={tmp_path}", "--LabApp.expose_app_in_browser=True",
         "--LabApp.news_url=", f"--LabApp.user_settings_dir={tmp_path / 'settings'}"],
        env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(lambda: _answers(f"{address}/api"), "JupyterLab to answer")
        yield f"{address}/lab/tree/05_read_the_evidence.ipynb"
    finally:
        server.terminate()
        server.wait(timeout=20)
        log.close()


@pytest.fixture
def browser() -> Iterator[object]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--window-size=1400,1000"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(WAIT_S)
    yield driver
    driver.quit()


def test_moving_a_slider_changes_decision_and_plot(lab, browser, tmp_path):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def find(selector: str) -> object:
        return browser.find_element(By.CSS_SELECTOR, selector)

    def decision() -> str:  # in one step: a widget may be redrawn between finding and reading it
        return browser.execute_script("return document.querySelector('.memstrat-decision')?.innerText.trim() ?? ''")

    def drawing() -> str:
        return browser.execute_script("return document.querySelector('.memstrat-plot')?.src ?? ''")

    browser.get(lab)
    _wait(lambda: browser.execute_script(
        "return !!(window.jupyterapp && document.querySelector('.jp-Notebook .jp-CodeCell'))"), "the notebook to open")
    _wait(lambda: browser.execute_script(
        "const panel = window.jupyterapp.shell.currentWidget;"
        "return panel?.sessionContext?.session?.kernel?.connectionStatus === 'connected'"), "the kernel to connect")
    browser.execute_script("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    _wait(lambda: browser.find_elements(By.CSS_SELECTOR, ".memstrat-decision"), "the decision to show")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", find(".memstrat-decision"))
    before, plot = decision(), drawing()
    assert before.startswith("accept")
    assert find(".memstrat-plot").get_attribute("alt")

    find(".noUi-handle").send_keys(Keys.HOME)  # the memory cap to its lowest

    _wait(lambda: decision() not in ("", before), "the decision to change")
    assert decision().startswith("reject")
    _wait(lambda: drawing() not in ("", plot), "the plot to change")
    browser.save_screenshot(str(tmp_path / "notebook_05.png"))  # to look at: pytest keeps its last folders


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2):
            return True
    except OSError:
        return False


def _wait(condition, what: str) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.3)
    raise AssertionError(f"waited {WAIT_S} s for {what}")
