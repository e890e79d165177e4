import base64

import pytest

from hyscale_model import catalog
from hyscale_model.dashboard.answer import answer, scenario_text
from hyscale_model.dashboard.offer import FIRST, Offer, received, shown_name
from hyscale_model.dashboard.question import Question
from hyscale_model.errors import InputError
from hyscale_model.scenario import read_scenario
from hyscale_model.scenario.load import LIMIT_BYTES


def encoded(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def uploaded(text, name="mine.yaml"):
    key, kept = received(name, encoded(text))
    return Question(f"upload:{key}"), {key: kept}


TEXT = catalog.path("published", FIRST).read_text(encoding="utf-8")


def test_a_folder_is_offered_with_the_introduction_first(offer):
    assert offer.names[0] == FIRST
    assert len(offer.names) == len(set(offer.names)) > 10


def test_without_a_folder_the_catalogue_is_offered(tmp_path):
    assert set(Offer(tmp_path / "nothing").names) == set(catalog.names("published"))
    assert set(Offer(None).names) == set(catalog.names("published"))


def test_an_unknown_name_opens_nothing(offer):
    for name in ("../../etc/passwd", "/etc/passwd", "nothing", "upload:../x"):
        with pytest.raises(InputError):
            offer.source(name, {})


def test_an_upload_is_predicted_like_its_file(offer, tmp_path):
    question, uploads = uploaded(TEXT)
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT, encoding="utf-8")
    assert answer(question, offer, uploads).resolved.scenario == read_scenario(path).scenario


@pytest.mark.parametrize(
    "text", ["", "layout: [", "schema_version: 1\nmodel: glm-5\n", TEXT.replace("cp: 128", "cp: 96")]
)
def test_a_bad_upload_gets_the_message_of_the_command_line(offer, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as on_command_line:
        read_scenario("mine.yaml")
    question, uploads = uploaded(text)
    with pytest.raises(InputError) as on_page:
        answer(question, offer, uploads)
    assert str(on_page.value) == str(on_command_line.value)


@pytest.mark.parametrize(
    "text",
    [
        "extends: /etc/hostname\n",
        TEXT.replace("model: glm-5.1", "model: {hf_config: /etc/hostname}"),
        TEXT.replace("document_lengths: none", "document_lengths: {file: /etc/hostname}"),
        TEXT + "profile: /etc/hostname.yaml\n",
        TEXT + "profile: hostname.json\n",
        TEXT + "profile: ../published\n",
    ],
)
def test_an_upload_opens_no_file(offer, text):
    question, uploads = uploaded(text)
    with pytest.raises(InputError, match="cannot refer to other files"):
        answer(question, offer, uploads)


@pytest.mark.parametrize("content", [None, "A" * (2 * LIMIT_BYTES)])
def test_a_large_upload_is_refused(content):
    with pytest.raises(InputError, match="larger than"):
        received("mine.yaml", content)


@pytest.mark.parametrize("content", ["?", encoded(b"\0\1"), encoded(b"\xff\xfe")])
def test_what_is_no_text_is_refused(content):
    with pytest.raises(InputError):
        received("mine.yaml", content)


def test_an_address_of_another_browser_says_what_to_do(offer):
    with pytest.raises(InputError, match="uploaded in another browser"):
        answer(Question("upload:0123"), offer, {})


def test_names_of_files_are_shown_and_nothing_else():
    assert shown_name("C:\\users\\me\\mine.yaml") == "mine.yaml"
    assert shown_name("../../x\n\x1b.yaml") == "x.yaml"
    assert shown_name("") == "upload"


def test_a_scenario_is_handed_out_with_its_changes(offer):
    question = Question(FIRST, (("workload.sequence_length", "524288"),), (), ("megatron", "hyscale"))
    again = read_scenario("again.yaml", text=scenario_text(question, offer.source(FIRST, {}))).scenario
    assert again.workload.sequence_length == 524288
    assert [system.name for system in again.systems] == ["megatron", "hyscale"]
    assert again.reported == ()
