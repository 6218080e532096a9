from kvjax.experiment.text import aligned, markdown_table


def test_markdown_columns_are_aligned_and_pipes_escaped() -> None:
    assert markdown_table(["spec", "b"], [["a | b", "10"], ["c", "2"]]).splitlines() == [
        "| spec   |  b |",
        "|:-------|---:|",
        "| a \\| b | 10 |",
        "| c      |  2 |",
    ]


def test_aligned_has_no_trailing_blanks() -> None:
    assert aligned(["name", "x"], [["long name", ""]]) == "name       x\nlong name"
