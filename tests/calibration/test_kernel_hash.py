"""The hash of a kernel: what its code means."""

import pytest
from hyscale_calibration import kernel_hash as module
from hyscale_calibration.kernel_hash import hash_of_sources, kernel_hash, source_paths


@pytest.fixture
def source(tmp_path):
    def write(name, *lines):
        path = tmp_path / f"{name}.py"
        path.write_text("\n".join(lines))
        return path

    return write


def test_comments_docstrings_and_layout_do_not_count(source):
    plain = source("plain", "def f(x):", "    return x + 1")
    told = source(
        "told", '"""Adds."""', "def f(x):", '    """One."""', "    # Why.", "    return (x +", "            1)"
    )
    assert kernel_hash(plain) == kernel_hash(told)


def test_code_and_its_order_count(source):
    one, two = source("one", "x = 1"), source("two", "x = 2")
    assert kernel_hash(one) != kernel_hash(two)
    assert kernel_hash(one, two) != kernel_hash(two, one)


def test_sources_are_found_in_the_package_of_kernels():
    names = ("score_table/triton.py", "scoring/triton.py")
    paths = source_paths(names)
    assert [path.is_file() for path in paths] == [True, True]
    assert hash_of_sources(names) == kernel_hash(*paths)


def test_a_kernel_of_a_library_has_no_hash():
    assert hash_of_sources(()) is None


def test_a_missing_package_of_kernels_is_told(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    with pytest.raises(ModuleNotFoundError, match="hyscale_kernels is not installed"):
        source_paths(("x.py",))


def test_formatted_strings_count_but_not_the_quotes_they_are_written_in(source):
    one = source("one", "x = f'{a!r:>{w}} of {\", \".join(b)}'")
    two = source("two", "x = f\"{a!r:>{w}} of {', '.join(b)}\"")
    other = source("other", "x = f\"{a!s:>{w}} of {', '.join(b)}\"")
    assert kernel_hash(one) == kernel_hash(two)
    assert kernel_hash(one) != kernel_hash(other)
    # Written out by hand: the same with every version of Python.
    assert kernel_hash(one).startswith("073b344dcfcc")
