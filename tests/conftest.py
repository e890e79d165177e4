def pytest_addoption(parser):
    parser.addoption(
        "--require-browser", action="store_true", help="fail the tests of the dashboard where there is no Chromium"
    )
