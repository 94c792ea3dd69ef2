"""What commands print."""

from io import StringIO

from rich.console import Console

from trans_encoder.cli.output import score_table


def printed(columns):
    console = Console(file=StringIO(), width=80)
    console.print(score_table(columns, title="Spearman's rho"))
    return console.file.getvalue()


def test_scores_of_few_models_have_a_row_for_each_test_set():
    page = printed({"start": {"sts12": 72.366, "average": 78.9}, "ours": {"sts12": 74.9, "average": 81.4}})
    assert "test set" in page
    assert page.index("sts12") < page.index("72.37") < page.index("74.90") < page.index("average")


def test_scores_of_many_models_have_a_row_for_each_and_no_name_is_cut():
    names = [f"runs/tickets-{number}/best/sentence-transformers/all-MiniLM-L6-v2/cross" for number in range(4)]
    page = printed({name: {"sts12": 72.366, "average": 78.9} for name in names})
    assert "model" in page
    assert "…" not in page
    assert page.count("72.37") == 4
