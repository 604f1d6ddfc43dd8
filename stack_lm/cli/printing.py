"""Print a table of results as text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.console import format_cell, print_table
from ..core.markup import escape_latex

FORMS = ("text", "markdown", "latex", "csv")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}\b)")  # a thousands separator


class Heading(str):
    """A heading line across a table, above its rows."""


@dataclass(frozen=True)
class PrintedTable:
    """A table.

    Attributes:
        title: above the table.
        columns: column heads.
        body: a list of cells for each row, or a heading. Numbers are printed as `console.format_cell` does.
        text_columns: the number of text columns, from the left; the others are numbers.
        note: below the table.
    """

    title: str
    columns: Sequence[str]
    body: Sequence[Sequence[Any] | Heading]
    text_columns: int = 1
    note: str = ""

    def print_as(self, form: str) -> None:
        """Print the table in one of `FORMS`."""
        if form == "text":
            rows = [self._across(row, "{}") for row in self.body]
            print_table(self.title, self.columns, rows, self.note, text_columns=self.text_columns)
        else:
            {"markdown": self._print_markdown, "latex": self._print_latex, "csv": self._print_csv}[form]()

    def _print_markdown(self) -> None:
        print(f"{self.title}\n")
        print("| " + " | ".join(self.columns) + " |")
        print("|" + "|".join("---" if i < self.text_columns else "--:" for i in range(len(self.columns))) + "|")
        for row in self.body:
            cells = self._across(row, "**{}**")
            print("| " + " | ".join(format_cell(cell).replace("|", "\\|") for cell in cells) + " |")
        if self.note:
            print(f"\n{self.note}")

    def _print_latex(self) -> None:
        print("\\begin{table}\n\\centering")
        print(f"\\caption{{{escape_latex(self.title)}{' ' * bool(self.note)}{escape_latex(self.note)}}}")
        kinds = "l" * self.text_columns + "r" * (len(self.columns) - self.text_columns)
        print(f"\\begin{{tabular}}{{{kinds}}}\n\\hline")
        print(" & ".join(map(escape_latex, self.columns)) + " \\\\\n\\hline")
        for row in self.body:
            if isinstance(row, Heading):
                print(f"\\multicolumn{{{len(self.columns)}}}{{l}}{{\\textit{{{escape_latex(row)}}}}} \\\\")
            else:
                print(" & ".join(escape_latex(format_cell(cell)) for cell in row) + " \\\\")
        print("\\hline\n\\end{tabular}\n\\end{table}")

    def _print_csv(self) -> None:
        """Print the rows alone, without title, headings and note; numbers without thousands separators."""
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.body:
            if not isinstance(row, Heading):
                texts, numbers = row[: self.text_columns], row[self.text_columns :]
                writer.writerow([*texts, *(_GROUPED.sub("", format_cell(number)) for number in numbers)])

    def _across(self, row: Sequence[Any] | Heading, form: str) -> Sequence[Any]:
        return [form.format(row), *[""] * (len(self.columns) - 1)] if isinstance(row, Heading) else row
