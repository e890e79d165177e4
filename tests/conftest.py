import gc

from hypothesis import HealthCheck, settings

# A busy machine is no failed truth. Here, before a module of any folder is collected: examples keep the settings that
# held when they were defined.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make check` tries fewer; the whole suite all.
settings.register_profile("fewer", settings.get_profile("any machine"), max_examples=30)
settings.load_profile("any machine")


def pytest_addoption(parser):
    parser.addoption(
        "--require-browser", action="store_true", help="fail the tests of the dashboard where there is no Chromium"
    )


def pytest_collection_finish():
    # Modules stay: collections of garbage, which some tests and programs ask for, need not look at them again.
    gc.collect()
    gc.freeze()
