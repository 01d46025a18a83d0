"""Both packages are there after `make build`."""


def test_both_packages_can_be_imported():
    import msprobe
    import ptdbg_ascend

    assert msprobe.__version__
    assert ptdbg_ascend.__doc__
