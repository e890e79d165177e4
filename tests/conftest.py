import gc


def pytest_addoption(parser):
    parser.addoption(
        "--require-browser", action="store_true", help="fail the tests of the dashboard where there is no Chromium"
    )


def pytest_collection_finish():
    # Modules stay: collections of garbage, which some tests and programs ask for, need not look at them again.
    gc.collect()
    gc.freeze()
