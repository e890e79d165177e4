import threading
import time

import pytest

from hyscale_model.dashboard import jobs as module
from hyscale_model.dashboard.jobs import Jobs
from hyscale_model.errors import InputError
from hyscale_model.scenario import read_scenario
from hyscale_model.studies.search import search
from hyscale_model.studies.sweep import Sweep
from hyscale_model.views import Progress


@pytest.fixture
def jobs():
    found = Jobs()
    yield found
    found.close()


def finished(jobs, question, name, work):
    """The result of a study, however often it must be asked for."""
    for _ in range(600):
        found = jobs.ask(question, name, work)
        if not isinstance(found, Progress):
            return found
        time.sleep(0.1)
    raise AssertionError("the study does not end")


def test_a_short_study_is_there_at_once_and_remembered(jobs, resolve):
    asked = Sweep.of(resolve("sweep={layout.cp: [64, 128]}"), draws=2)
    found = jobs.ask("question", "sweep", asked.collect)
    assert found == asked.collect()
    assert jobs.ask("question", "sweep", lambda run: pytest.fail("done twice")) is found
    assert jobs.ask("another", "sweep", lambda run: {"other": 1}) == {"other": 1}


def test_a_page_does_not_wait_for_what_can_come_later(jobs):
    may_end = threading.Event()

    def work(run):
        may_end.wait(60)
        return {"found": 1}

    found = jobs.ask("question", "first", work, later=True)
    assert isinstance(found, Progress)
    assert jobs.progress(found.job) < 1
    may_end.set()
    assert finished(jobs, "question", "first", lambda run: pytest.fail("done twice")) == {"found": 1}
    assert jobs.progress(found.job) == 1


@pytest.mark.slow
def test_a_long_study_gives_what_the_command_line_gives(jobs, resolve, monkeypatch):
    monkeypatch.setattr(module, "FEW_CHUNKS", 0)
    resolved = resolve(small=True)
    found = finished(jobs, "question", "search", lambda run: search(resolved, top=3, draws=4, run=run))
    assert found == search(resolved, top=3, draws=4)


def test_a_study_tells_how_far_it_is_and_ends_when_cancelled(jobs, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    monkeypatch.setattr(module, "FEW_CHUNKS", -1)
    going, ended = threading.Event(), threading.Event()

    def work(run):
        list(run([]))
        going.wait(10)
        try:
            # What a study does between chunks.
            jobs.job(first.job).live()
        finally:
            ended.set()
        return {}

    first = jobs.ask("question", "long", work)
    assert isinstance(first, Progress)
    assert jobs.progress(first.job) == first.done == 0.0
    jobs.cancel(first.job)
    assert jobs.progress(first.job) is None
    going.set()
    assert ended.wait(10)


def test_a_study_that_nobody_asks_about_ends(monkeypatch):
    monkeypatch.setattr(module, "LEASE_S", 0.0)
    job = module.Job("name")
    time.sleep(0.01)
    with pytest.raises(module.Abandoned):
        job.live()


def test_what_is_wrong_is_told_each_time(jobs):
    def work(run):
        raise InputError("nothing to search")

    for _ in range(2):
        with pytest.raises(InputError, match="nothing to search"):
            jobs.ask("question", "bad", work)


def test_too_many_studies_at_once_are_refused(jobs, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    monkeypatch.setattr(module, "FEW_CHUNKS", -1)
    hold = threading.Event()
    for number in range(2):
        jobs.ask(number, "waits", lambda run: {"waited": [*run([]), hold.wait(10)]})
    with pytest.raises(InputError, match="too many studies"):
        jobs.ask(3, "waits", lambda run: {})
    hold.set()


def test_a_name_nobody_gave_is_no_study(jobs):
    assert jobs.progress("../../etc/passwd") is None
    jobs.cancel("nothing")


def test_too_many_layouts_are_refused_with_their_number(jobs, monkeypatch):
    monkeypatch.setattr(module, "MOST_POINTS", 10)
    resolved = read_scenario("scenarios/glm-5.1-1m-512xh20.yaml")
    with pytest.raises(InputError, match=r"[\d,]+ layouts are too many.*at most 10"):
        finished(jobs, "question", "search", lambda run: search(resolved, run=run))
