//! The content that each format provides and accepts.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Error;

/// A kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Noun {
    /// Texts with id and title.
    Documents,
    /// KILT's records as they are.
    Records,
    /// Queries and judgements together.
    Tasks,
    /// Ids and texts.
    Queries,
    /// Which documents are relevant for which query.
    Judgements,
    /// Ranked documents of a system.
    Rankings,
    /// Queries with gold answers and retrieved passages.
    Examples,
    /// Dialogues with the sentences to choose from.
    Dialogues,
}

impl Noun {
    pub(super) fn singular(self) -> &'static str {
        match self {
            Self::Documents => "document",
            Self::Records | Self::Tasks => "record",
            Self::Queries => "query",
            Self::Judgements => "judgement",
            Self::Rankings => "ranking",
            Self::Examples => "example",
            Self::Dialogues => "dialogue",
        }
    }
}

/// A format that [`convert`](super::convert) reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// KILT's knowledge source, a page a line.
    KnowledgeSource,
    /// The folder of a passage store.
    Store,
    /// DPR's `psgs_w100.tsv`.
    PsgsTsv,
    /// BEIR's `corpus.jsonl`.
    BeirCorpus,
    /// Anserini's `JsonCollection`.
    Anserini,
    /// Passages as JSON lines.
    Passages,
    /// MS MARCO's `collection.tsv`.
    Msmarco,
    /// KILT's task file.
    Kilt,
    /// BEIR's folder of `queries.jsonl` and `qrels/<split>.tsv`.
    Beir,
    /// BEIR's `queries.jsonl`.
    BeirQueries,
    /// Anserini's topics.
    Topics,
    /// BEIR's `qrels/<split>.tsv`.
    BeirQrels,
    /// TREC's qrels.
    Qrels,
    /// TREC's run.
    Run,
    /// KILT's predictions.
    Predictions,
    /// DPR's retrieval results, FiD's input.
    Fid,
    /// DPR's training data.
    DprTraining,
    /// Wizard of Wikipedia's conversations.
    Wow,
    /// WOW++'s dialogues with annotated sentences.
    Wowpp,
}

struct Row {
    format: Format,
    name: &'static str,
    about: &'static str,
    gives: &'static [Noun],
    takes: Option<Noun>,
}

const fn row(
    format: Format,
    name: &'static str,
    about: &'static str,
    gives: &'static [Noun],
    takes: Option<Noun>,
) -> Row {
    Row { format, name, about, gives, takes }
}

/// In the order of [`Format`]'s variants.
const TABLE: [Row; 19] = {
    use Format::*;
    use Noun::*;
    [
        row(KnowledgeSource, "knowledge-source", "KILT's pages, JSON lines", &[Documents], Some(Documents)),
        row(Store, "store", "a passage store's folder", &[Documents], None),
        row(PsgsTsv, "psgs-tsv", "DPR's corpus, id TAB text TAB title", &[Documents], Some(Documents)),
        row(BeirCorpus, "beir-corpus", "BEIR's corpus.jsonl", &[Documents], Some(Documents)),
        row(Anserini, "anserini", "Anserini's {id, contents}", &[Documents], Some(Documents)),
        row(Passages, "passages", "JSON lines of {id, title, text, ..}", &[Documents], Some(Documents)),
        row(Msmarco, "msmarco", "MS MARCO's collection.tsv, id TAB text", &[Documents], None),
        row(
            Kilt,
            "kilt",
            "KILT's task file",
            &[Records, Tasks, Queries, Judgements, Examples],
            Some(Records),
        ),
        row(Beir, "beir", "BEIR's queries.jsonl and qrels in a folder", &[], Some(Tasks)),
        row(BeirQueries, "beir-queries", "BEIR's queries.jsonl", &[Queries], Some(Queries)),
        row(Topics, "topics", "Anserini's topics, id TAB query", &[Queries], Some(Queries)),
        row(BeirQrels, "beir-qrels", "BEIR's qrels/<split>.tsv", &[Judgements], Some(Judgements)),
        row(Qrels, "qrels", "TREC's judgements", &[Judgements], Some(Judgements)),
        row(Run, "run", "TREC's rankings", &[Rankings], Some(Rankings)),
        row(Predictions, "predictions", "KILT's predictions", &[Rankings], Some(Rankings)),
        row(
            Fid,
            "fid",
            "DPR's retrieval results, FiD's input",
            &[Rankings, Queries, Documents],
            Some(Examples),
        ),
        row(DprTraining, "dpr-training", "DPR's training data", &[Documents], Some(Examples)),
        row(Wow, "wow", "Wizard of Wikipedia's conversations", &[Dialogues], None),
        row(Wowpp, "wowpp", "WOW++'s dialogues with annotated sentences", &[], Some(Dialogues)),
    ]
};

impl Format {
    /// Every format.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.format)
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// A short description.
    pub fn about(self) -> &'static str {
        self.row().about
    }

    /// The kind of content that converts from this format to `to`; none if the conversion is impossible.
    pub fn becomes(self, to: Self) -> Option<Noun> {
        let noun = to.row().takes?;
        // Within one format only records can change, by adding questions.
        let useful = self != to || noun == Noun::Records;
        (useful && self.row().gives.contains(&noun)).then_some(noun)
    }

    /// The formats that this one can become.
    pub fn targets(self) -> impl Iterator<Item = Self> {
        Self::all().filter(move |&to| self.becomes(to).is_some())
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::all().find(|format| format.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            Error::Argument(format!(
                "expected a format, found `{name}`; the formats are {}",
                names.join(", ")
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_finds_its_own_row_and_name() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.format as usize, at);
            assert_eq!(row.name.parse::<Format>().unwrap(), row.format);
            assert_eq!(serde_json::to_value(row.format).unwrap(), row.name);
        }
        let message = "psgs".parse::<Format>().unwrap_err().to_string();
        assert!(message.contains("found `psgs`") && message.contains("psgs-tsv"), "{message}");
    }

    #[test]
    fn formats_become_what_takes_a_noun_of_theirs() {
        let targets = |format: Format| format.targets().map(Format::name).collect::<Vec<_>>().join(" ");
        assert_eq!(targets(Format::PsgsTsv), "knowledge-source beir-corpus anserini passages");
        assert_eq!(targets(Format::Store), "knowledge-source psgs-tsv beir-corpus anserini passages");
        assert_eq!(targets(Format::Kilt), "kilt beir beir-queries topics beir-qrels qrels fid dpr-training");
        assert_eq!(targets(Format::Predictions), "run");
        assert_eq!(
            targets(Format::Fid),
            "knowledge-source psgs-tsv beir-corpus anserini passages beir-queries topics run predictions"
        );
        assert_eq!(targets(Format::Beir), "");
        assert_eq!(targets(Format::Wow), "wowpp");
    }
}
