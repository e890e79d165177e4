from hypothesis import given
from hypothesis import strategies as st

from hyscale_model.report.markup import Markup, element, joined


def test_elements_nest():
    assert element("p", "a ", element("b", "c")) == "<p>a <b>c</b></p>"


def test_attributes_take_the_names_of_html():
    made = element("button", "x", class_="small", data_act="pin", disabled=True, hidden=False, title=None)
    assert made == '<button class="small" data-act="pin" disabled>x</button>'


def test_void_elements_have_no_end():
    assert element("input", type="number", value=1.5) == '<input type="number" value="1.5">'


def test_nothing_is_left_out():
    assert joined("a", None, Markup("<br>")) == "a<br>"


@given(st.text())
def test_text_never_becomes_markup(text):
    made = element("p", text, title=text)
    inside = made.removeprefix('<p title="').removesuffix("</p>")
    assert "<" not in inside
    assert inside.count('"') == 1
