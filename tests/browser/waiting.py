def watch(page, address):
    """What the browser complains about from now on, as a list that grows."""
    complaints = []

    def elsewhere(url):
        return [] if url.startswith((address, "data:", "blob:")) else [url]

    def failed(request):
        # A page that is left gives up what it asked for.
        return [] if request.failure == "net::ERR_ABORTED" else [f"failed: {request.url}"]

    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.extend(failed(request)))
    page.on("request", lambda request: complaints.extend(elsewhere(request.url)))
    return complaints


def settled(page):
    """Wait until the page shows the answer to what it asked, with its controls and figures."""
    page.wait_for_selector('#view[aria-busy="false"]')
    page.wait_for_selector("#sidebar details", state="attached")
    page.wait_for_function(
        "Array.from(document.querySelectorAll('.figure')).every(each => each.querySelector('.main-svg'))"
    )
