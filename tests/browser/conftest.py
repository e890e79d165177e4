import pytest
from harness import LACKING as MISSING
from harness import OPTIONS, chromium, served, settled, watch

LACKING = f"BROWSER TESTS NOT RUN: {MISSING}"


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", [])
    if any(LACKING in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(LACKING, red=True, bold=True)


@pytest.fixture(scope="session")
def browser(request):
    path = chromium()
    if path is None:
        if request.config.getoption("--require-browser"):
            pytest.fail(LACKING)
        pytest.skip(LACKING)
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def address():
    with served() as found:
        yield found


@pytest.fixture(scope="session")
def context(browser):
    """One for all tests, so that what never changes is loaded once."""
    context = browser.new_context(accept_downloads=True)
    yield context
    context.close()


@pytest.fixture
def open_page(context, address):
    """Opens an address of the dashboard; whatever the browser complains about fails the test."""
    pages, complaints = [], []

    def _open(query="", width=1280, theme="light"):
        page = context.new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        complaints.append(watch(page, address))
        page.goto(address + query)
        settled(page)
        return page

    yield _open
    for page in pages:
        page.close()
    assert not [text for each in complaints for text in each]


@pytest.fixture(scope="session")
def _kept(context, address):
    """Pages that stay open, by width and theme: a page loads in seconds, and shows another view at once."""
    pages = {}

    def _page(width, theme):
        if (width, theme) not in pages:
            page = context.new_page()
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            pages[width, theme] = page, watch(page, address)
            page.goto(address)
            settled(page)
        return pages[width, theme]

    yield _page
    for page, _ in pages.values():
        page.close()


@pytest.fixture
def visit(_kept):
    """Shows an address in a page that is open already, as the browser's back button does."""
    visited = {}

    def _visit(query, width=1280, theme="light"):
        page, complaints = _kept(width, theme)
        visited[id(page)] = complaints
        page.evaluate(
            """(query) => {
                if (location.search === query) return;
                document.getElementById("view").setAttribute("aria-busy", "true");
                history.pushState({}, "", query);
                window.dispatchEvent(new PopStateEvent("popstate"));
            }""",
            query,
        )
        settled(page)
        return page

    yield _visit
    left = [complaints[:] for complaints in visited.values()]
    for complaints in visited.values():
        complaints.clear()
    assert not [text for each in left for text in each]
