"""Tables as text: Markdown for results, plain columns for lists."""

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns padded to equal width; the first column is left-aligned, the others right-aligned.

    >>> print(markdown_table(["codec", "bytes"], [["fp8", "1"]]))
    | codec | bytes |
    |:------|------:|
    | fp8   |     1 |
    """
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(header), *cells]) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        return f"| {' | '.join(padded)} |"

    rule = ":" + "-" * (widths[0] + 1) + "|" + "|".join("-" * (width + 1) + ":" for width in widths[1:])
    return "\n".join([line(header), f"|{rule}|", *map(line, cells)])


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to equal width, two spaces apart.

    >>> print(aligned(["name", "bytes"], [["fp8", "1"]]))
    name  bytes
    fp8   1
    """
    table = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table)
    return "\n".join(line.rstrip() for line in lines)
