"""The server's page in a real browser; `.ci/browser` installs one, and REQUIRE_BROWSER forbids skipping."""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from serving import running
from trans_encoder.answers.audit import Audit
from trans_encoder.answers.duplicates import find_duplicates
from trans_encoder.answers.index import build_index
from trans_encoder.data.corpus import Corpus

HOSTILE = "<img src=x onerror='window.owned=1'> the old farmer <script>window.owned=1</script>"
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


@pytest.fixture(scope="module")
def place(tmp_path_factory, static, sentences):
    """An index with hostile rows, and its duplicates."""
    root = tmp_path_factory.mktemp("served")
    some = list(dict.fromkeys(sentences))[:20]
    texts = [*some, *(f"{text} near" for text in some[:10]), HOSTILE, f"{HOSTILE} near"]
    index = build_index(Corpus.from_texts(texts), root / "index", models=[str(static)])
    find_duplicates(index).save(root / "duplicates")
    return index, root / "duplicates", texts


@pytest.fixture
def page(browser, place):
    index, duplicates, _ = place
    with running(index, duplicates=duplicates) as client:
        browser.get_log("browser")
        browser.get(f"http://127.0.0.1:{client.port}/")
        yield browser


def text_of(page, name):
    return page.find_element(By.ID, name).text


def wait(page, condition):
    return WebDriverWait(page, 60).until(lambda _: condition())


def test_search_as_you_type_shows_rows_as_text(page):
    page.find_element(By.ID, "query").send_keys("the old farmer img")
    wait(page, lambda: "<script>" in text_of(page, "hits"))
    assert page.execute_script("return window.owned") is None
    assert page.find_elements(By.CSS_SELECTOR, "#hits img, #hits script") == []
    assert page.get_log("browser") == []


def test_two_texts_are_compared(page, place):
    page.find_element(By.ID, "tab-compare").click()
    for name in ("text1", "text2"):
        page.find_element(By.ID, name).send_keys(place[2][0])
    wait(page, lambda: "bi-encoder" in text_of(page, "opinions"))
    assert "1.000" in text_of(page, "opinions")


def test_groups_are_walked_through_by_keyboard(page):
    page.find_element(By.ID, "tab-groups").click()
    wait(page, lambda: text_of(page, "place").startswith("group 1 of"))
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.ARROW_RIGHT)
    wait(page, lambda: text_of(page, "place").startswith("group 2 of"))
    assert len(page.find_elements(By.CSS_SELECTOR, "#rows li")) >= 2


def test_the_audit_is_answered_and_undone_by_keyboard(page, place):
    page.find_element(By.ID, "tab-audit").click()
    wait(page, lambda: text_of(page, "progress").startswith("0 of"))
    body = page.find_element(By.TAG_NAME, "body")
    for key, said in (("s", "1 of"), ("n", "2 of"), ("z", "1 of"), ("u", "2 of")):
        body.send_keys(key)
        wait(page, lambda said=said: text_of(page, "progress").startswith(said))
    assert sorted(Audit.open(place[1]).answers.values()) == ["same", "unsure"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_follows_its_colours(page, scheme):
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    for tab in ("search", "compare", "groups", "audit"):
        page.find_element(By.ID, f"tab-{tab}").click()
        assert page.execute_script("return document.documentElement.scrollWidth") <= PHONE["width"]
    colour = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 24, 28)")
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
