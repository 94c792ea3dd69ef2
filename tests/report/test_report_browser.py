"""The report in a real browser, opened from disk; `.ci/browser` installs one, and REQUIRE_BROWSER forbids skipping."""

import json

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from report_runs import HOSTILE, write_real_run, write_run
from trans_encoder.data.tasks import TestSet
from trans_encoder.report import write_report
from trans_encoder.report.measuring import evaluate_run

PAGES = ("self", "team", "hostile", "unfinished", "several", "real")
DESKTOP, PHONE = 1280, 390


@pytest.fixture(scope="module")
def pages(tmp_path_factory, bert, pairs, dev):
    root = tmp_path_factory.mktemp("runs")
    alone, team = write_run(root / "self", pairs=200), write_run(root / "team", members=("bert", "roberta"))
    hostile = write_run(root / "<b>hostile", sentences=HOSTILE, pairs=60, tests=("<script>window.owned = 1</script>",))
    unfinished = root / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.json").write_text("{}")
    real = write_real_run(root / "real", bert=bert, pairs=pairs, dev=dev)
    evaluate_run(real, {"test": TestSet("test", dev)})
    runs = {"self": [alone], "team": [team], "hostile": [hostile], "unfinished": [unfinished], "real": [real]}
    runs["several"] = [alone, team]
    return {name: write_report(folders, root / f"{name}.html") for name, folders in runs.items()}


@pytest.fixture
def opened(browser, pages):
    def open_page(name, *, width=DESKTOP, scheme="light"):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in media.items()]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get(pages[name].as_uri())
        return browser

    return open_page


def shown(browser):
    """Return the rows that can be seen."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#table tbody tr')].filter((row) => row.offsetHeight)"
    )


def texts(browser):
    return browser.execute_script("return arguments[0].map((row) => row.innerText)", shown(browser))


def values(browser, column):
    script = "return arguments[0].map((row) => Number(row.cells[arguments[1]].dataset.value))"
    return browser.execute_script(script, shown(browser), column)


def header(browser, name):
    return next(one for one in browser.find_elements(By.CSS_SELECTOR, "#table th") if one.text.startswith(name))


def requests(browser):
    """Return the addresses that the page asked for, but for those that its policy held back."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    held = {one["params"]["requestId"] for one in messages if one["params"].get("blockedReason") == "csp"}
    sent = [one["params"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent if one["requestId"] not in held]


@pytest.mark.parametrize("name", PAGES)
def test_opens_from_disk_with_no_request_and_no_complaint(opened, pages, name):
    browser = opened(name)
    outside = [url for url in requests(browser) if not url.startswith("data:") and url != pages[name].as_uri()]
    assert outside == []
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("width", [DESKTOP, 768, PHONE])
@pytest.mark.parametrize("name", PAGES)
def test_fits_the_screen(opened, name, width):
    browser = opened(name, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_policy_lets_nothing_in_or_out(opened):
    browser = opened("self")
    browser.execute_script("""
        window.refused = [];
        document.addEventListener("securitypolicyviolation", (event) => window.refused.push(event.effectiveDirective));
        for (const [tag, name, value] of [["script", "textContent", "window.owned = 1"], ["img", "src", "https://example.com/x.png"],
                                          ["style", "textContent", "body { display: none }"]]) {
            const element = document.createElement(tag);
            element[name] = value;
            document.body.append(element);
        }
        document.body.setAttribute("onclick", "window.owned = 1");
        document.body.click();
        fetch("https://example.com/").catch(() => {});
    """)
    refused = browser.execute_async_script("setTimeout(() => arguments[0](window.refused), 200)")
    assert {"script-src-elem", "script-src-attr", "img-src", "style-src-elem", "connect-src"} <= set(refused)
    assert browser.execute_script("return window.owned") is None
    assert not [url for url in requests(browser) if url.startswith("http")]


@pytest.mark.parametrize(("column", "name"), [(2, "teacher"), (3, "student"), (4, "gap")])
def test_numbers_sort_both_ways(opened, column, name):
    browser = opened("self")
    if name == "gap":
        assert header(browser, name).get_attribute("aria-sort") == "descending"  # the order at first
    else:
        header(browser, name).find_element(By.TAG_NAME, "button").click()
    found = values(browser, column)
    assert len(found) == 25
    assert found == sorted(found, reverse=True)
    header(browser, name).find_element(By.TAG_NAME, "button").click()
    found = values(browser, column)
    assert found == sorted(found)
    assert header(browser, name).get_attribute("aria-sort") == "ascending"
    assert len(browser.find_elements(By.CSS_SELECTOR, "#table th[aria-sort]")) == 1


def test_texts_sort_by_keyboard(opened):
    browser = opened("self")
    header(browser, "first").find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    found = [text.splitlines()[0] for text in texts(browser)]
    assert found == sorted(found)
    assert len(set(found)) > 1


def test_search_finds_every_word_in_any_case(opened):
    browser = opened("self")
    total = len(browser.find_elements(By.CSS_SELECTOR, "#table tbody tr"))
    search = browser.find_element(By.ID, "search")
    search.send_keys("VIOLIN garden")
    found = texts(browser)
    assert found
    assert all("violin" in text and "garden" in text for text in found)
    matching = browser.find_element(By.ID, "count").text
    assert matching.endswith(f"of {total} pairs")
    assert int(matching.split()[0]) < total
    search.clear()
    search.send_keys("no such words")
    assert shown(browser) == []
    assert browser.find_element(By.ID, "none").is_displayed()
    search.clear()
    search.send_keys(Keys.SPACE)
    assert browser.find_element(By.ID, "count").text == f"{total} of {total} pairs"


def test_trainings_filter_and_more_rows_follow(opened):
    browser = opened("self")
    browser.find_element(By.ID, "more").click()
    assert len(shown(browser)) == 50
    choice = Select(browser.find_element(By.ID, "stage"))
    choice.select_by_visible_text("cycle 1: cross → bi")
    found = texts(browser)
    assert len(found) == 25
    assert all("cycle 1: cross → bi" in text for text in found)


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_hostile_texts_do_no_harm(opened, width):
    browser = opened("hostile", width=width)
    assert browser.execute_script("return window.owned") is None
    assert browser.title == "<b>hostile: trans-encoder report"
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 1
    assert browser.find_elements(By.CSS_SELECTOR, "img, iframe, b b, [onmouseover]") == []
    for text in (HOSTILE[0], HOSTILE[1], HOSTILE[3]):
        browser.find_element(By.ID, "search").clear()
        browser.find_element(By.ID, "search").send_keys(text.split()[0])
        assert any(text in row for row in texts(browser))


def test_right_to_left_text_reads_from_the_right(opened):
    browser = opened("hostile")
    search = browser.find_element(By.ID, "search")
    search.send_keys("مرحبا")
    text = next(one for one in browser.find_elements(By.CSS_SELECTOR, "#table p.text") if one.text.startswith("مرحبا"))
    assert text.value_of_css_property("direction") == "rtl"
    assert shown(browser)[0].value_of_css_property("direction") == "ltr"


def test_long_text_opens_on_demand(opened):
    browser = opened("hostile")
    browser.find_element(By.ID, "search").send_keys("endlessendless")
    long = shown(browser)[0].find_element(By.CSS_SELECTOR, "details.text")
    before = long.size["height"]
    long.find_element(By.TAG_NAME, "summary").click()
    assert long.size["height"] > before
    assert "28,000 characters" in long.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_button(opened, scheme):
    browser = opened("self", scheme=scheme)

    def brightness():
        colour = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        return sum(int(part.strip(" rgba()")) for part in colour.split(",")[:3]) / 3

    assert (brightness() > 128) == (scheme == "light")
    browser.find_element(By.ID, "theme").click()
    assert (brightness() > 128) != (scheme == "light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(opened, scheme):
    browser = opened("self", scheme=scheme)
    assert browser.execute_script(CONTRAST) == []


CONTRAST = """
const light = (colour) => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const ground = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (/^rgb\\(/.test(colour)) return colour;
  }
};
const found = [];
const selector = "main h1, main h2, main p, main td, main th, main small, .gain, nav a, .facts li";
for (const element of document.querySelectorAll(selector)) {
  const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.push(`${element.className || element.tagName} ${ratio.toFixed(2)}`);
}
return [...new Set(found)];
"""


def test_charts_and_controls_have_names(opened):
    browser = opened("team")
    unnamed = """
        const named = (one) => one.ariaLabel || one.textContent.trim() || one.labels?.length;
        const all = [...document.querySelectorAll("svg[role=img], button, input, select")];
        return all.filter((one) => !named(one)).length;
    """
    assert browser.execute_script(unnamed) == 0
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg.chart")) >= 10


def test_all_pairs_show_without_script(opened, browser, pages):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened("self")
        rows = browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")
        assert len(rows) > 100
        assert rows[0].is_displayed()
        assert rows[-1].is_displayed()
        assert not browser.find_element(By.ID, "controls").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_several_runs_stand_beside_each_other(opened):
    first, second = opened("several").find_elements(By.CSS_SELECTOR, "#training article")
    assert first.location["y"] == second.location["y"]
    first, second = opened("several", width=PHONE).find_elements(By.CSS_SELECTOR, "#training article")
    assert first.location["x"] == second.location["x"]
