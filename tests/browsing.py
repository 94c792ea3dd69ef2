"""A real browser for tests; `.ci/browser` installs one, and REQUIRE_BROWSER forbids skipping."""

import os
import shutil
from contextlib import contextmanager

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@contextmanager
def opened_browser(profile):
    """Run Chromium, its log and its requests noted, until the block ends; skip the test where there is none."""
    from selenium import webdriver

    if not (BROWSER and DRIVER):
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail("REQUIRE_BROWSER is set, but chromium or chromedriver is missing; run .ci/browser")
        pytest.skip("chromium and chromedriver are not installed; .ci/browser installs them")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
