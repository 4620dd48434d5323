"""Questions over documents, facts of texts, and TREC runs."""

import pickle

import pytest

import sporran

GUIDE = """# Guide

## Towers

The tower of Ashby is 41 metres high. It was built in 1862 by Mira Oberlin.

## Bridges

The bridge of Corran has seven arches.
"""


@pytest.fixture
def folder(tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "guide.md").write_text(GUIDE)
    (notes / "rows.csv").write_text("name,colour\nKestrel,brown\nHeron,grey\n")
    return notes


def test_a_question_has_evidence_with_its_place(folder, tmp_path):
    asker = sporran.Asker(folder, cache=tmp_path / "cache")
    answer = asker.ask("How high is the tower of Ashby?")
    assert answer.answer == "" and not answer.is_generated
    best = answer.evidence[0]
    assert best.file.endswith("guide.md") and best.section == "Towers"
    start, end = best.highlight
    assert best.text[start:end] == "The tower of Ashby is 41 metres high."
    assert "Towers" in repr(best)
    again = pickle.loads(pickle.dumps(answer))
    fields = ("question", "answer", "sentences", "is_generated")
    assert [getattr(again, name) for name in fields] == [getattr(answer, name) for name in fields]
    places = ("file", "page", "line", "row", "title", "section", "paragraph", "start", "end", "text", "highlight", "score")
    assert [[getattr(one, name) for name in places] for one in again.evidence] == [
        [getattr(one, name) for name in places] for one in answer.evidence
    ]
    filtered = sporran.Asker(folder, cache=tmp_path / "cache", filters=[{"source": "*rows.csv"}], passages=1)
    for one in (asker, filtered):
        found = pickle.loads(pickle.dumps(one)).ask("Which colour has the heron?")
        assert found.evidence[0].text == one.ask("Which colour has the heron?").evidence[0].text
    with pytest.raises(sporran.InputError):
        asker.ask("  ")
    with pytest.raises(sporran.InputError, match="nowhere"):
        sporran.Asker(folder / "nowhere", cache=tmp_path / "cache")
    with pytest.raises(sporran.InputError, match="at least one path"):
        sporran.Asker([], cache=tmp_path / "cache")


def test_a_folder_becomes_a_store(folder, tmp_path):
    store = sporran.PassageStore.from_folder(folder, cache=tmp_path / "cache")
    assert store.pages == 3
    index = sporran.BM25.build(store, tmp_path / "bm25")
    assert "seven arches" in index.search("bridge of Corran")[0].passage.text
    whole = sporran.PassageStore.from_folder([folder], cache=tmp_path / "cache", split="page", include=["*.md"])
    assert len(whole) == whole.pages == 1
    with pytest.raises(sporran.InputError, match="splits"):
        sporran.PassageStore.from_folder(folder, cache=tmp_path / "cache", splits="page")


def test_facts_are_those_of_a_config(root, monkeypatch):
    monkeypatch.chdir(root)
    extractor = sporran.FactExtractor("configs/quickstart-kbp.toml")
    texts = ["Ada Lovelace was born in London.", ""]
    facts = extractor.extract(texts)
    assert len(facts) == 2 and facts[1] == []
    for fact in facts[0]:
        mention = fact["subject"]["mention"]
        assert texts[0][mention["start"] : mention["end"]] == mention["text"]
    assert any(fact["property"] == "PLACE_OF_BIRTH" for fact in facts[0])
    assert pickle.loads(pickle.dumps(extractor)).extract(texts) == facts
    with pytest.raises(sporran.ConfigError, match="nonsense"):
        sporran.FactExtractor("configs/quickstart-kbp.toml", {"nonsense": 1})


def test_a_trec_run_is_scored(tmp_path):
    qrels = tmp_path / "qrels"
    qrels.write_text("1 0 a 1\n1 0 b 0\n2 0 c 1\n3 0 d 1\n")
    run = tmp_path / "run"
    run.write_text("1 Q0 b 1 2.0 t\n1 Q0 a 2 1.0 t\n2 Q0 c 1 1.0 t\n")
    report = sporran.evaluate.trec(qrels, run, ["RR", "P@1"], per_query=True)
    assert (report["RR"], report["P@1"], report["queries"]) == (0.75, 0.5, 2)
    assert report["missing"] == ["3"] and report["per_query"]["1"] == {"RR": 0.5, "P@1": 0.0}
    assert sporran.evaluate.trec(qrels, run, ["RR"], complete=True)["RR"] == 0.5
    with pytest.raises(sporran.InputError, match="nonsense"):
        sporran.evaluate.trec(qrels, run, ["nonsense"])
