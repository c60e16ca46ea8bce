"""Notes about files."""

from nextlevelbert.search.notes import Notes


def test_a_note_is_printed_once(capsys):
    """The page of `app` lists the files again for each question."""
    notes = Notes()
    notes.add("a.pdf", [("left out", " holds no text.", "")])
    notes.add("b.pdf", [("left out", " holds no text.", "")])
    notes.print()
    notes.add("a.pdf", [("left out", " holds no text.", "")])
    notes.add("b.pdf", [("left out", " holds no text.", "")])
    notes.print()
    notes.add("a.pdf", [("left out", " is damaged.", "")])

    notes.print()

    assert capsys.readouterr().err.splitlines() == [
        "left out: a.pdf holds no text. The same holds for b.pdf.",
        "left out: a.pdf is damaged.",
    ]
