//! The relevant sentences of WOW++'s dialogues (Eric et al., 2021, section 3.3): their number, their topics, the gold sentence,
//! and the kinds of last utterances.

use std::{collections::BTreeMap, fmt, path::Path, str::FromStr};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::{
    Error, Result, counted, csv,
    scores::Measure,
    wowpp::{Dialogue, Dialogues},
};

/// The kind of a dialogue's last utterance (table 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UtteranceKind {
    /// A question about the other speaker: "I love to play football, do you?"
    Personal,
    /// A question about facts: "What else do you know about rap?"
    Factual,
    /// A general statement: "Soap operas seem so bad to me."
    General,
}

impl UtteranceKind {
    const ALL: [(&'static str, Self); 3] =
        [("personal", Self::Personal), ("factual", Self::Factual), ("general", Self::General)];
}

impl FromStr for UtteranceKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|(known, _)| *known == name);
        known
            .map(|(_, kind)| kind)
            .ok_or_else(|| format!("expected personal, factual or general, found `{name}`"))
    }
}

impl fmt::Display for UtteranceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.into_iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name))
    }
}

/// Dialogues whose relevant sentences are from one number of topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TopicCount {
    /// The number of different articles.
    pub topics: usize,
    /// The dialogues with more than one relevant sentence, all from this number of articles.
    pub dialogues: usize,
    /// The relevant sentences of these dialogues.
    pub sentences: usize,
}

/// The dialogues with one kind of last utterance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindCount {
    /// The kind.
    pub kind: UtteranceKind,
    /// The number of dialogues.
    pub dialogues: usize,
    /// Their share of the dialogues with a kind.
    pub share: Measure,
    /// Their relevant sentences by number of topics.
    pub topics: Vec<TopicCount>,
}

/// The gold sentence of Wizard of Wikipedia among the relevant sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GoldCounts {
    /// The dialogues with a gold sentence.
    pub dialogues: usize,
    /// Those with the gold sentence among the annotated sentences.
    pub among_candidates: usize,
    /// Of these, the dialogues in which the gold sentence is the only relevant one.
    pub only_relevant: usize,
    /// Of those with it among the annotated sentences, the dialogues in which the gold sentence is not relevant.
    pub below_threshold: usize,
    /// Of these, the dialogues with another relevant sentence.
    pub with_alternative: usize,
}

/// The relevant sentences of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RelevanceReport {
    /// The number of dialogues, each with one annotated turn.
    pub dialogues: usize,
    /// The number of annotated sentences.
    pub sentences: usize,
    /// The third quartile of the sentences' confidences.
    pub third_quartile: Measure,
    /// The smallest confidence of a relevant sentence.
    pub threshold: f64,
    /// The mean number of relevant sentences of a dialogue (table 1).
    pub mean_relevant: Measure,
    /// The dialogues without a relevant sentence (table 1).
    pub with_none: usize,
    /// The dialogues with one relevant sentence (table 1).
    pub with_one: usize,
    /// The dialogues with more than one relevant sentence (table 1).
    pub with_more: usize,
    /// The number of dialogues by their number of relevant sentences, from 0 (figure 4).
    pub histogram: Vec<usize>,
    /// The relevant sentences by number of topics.
    pub topics: Vec<TopicCount>,
    /// The gold sentences. `None` if no dialogue has `gold_sentence`.
    pub gold: Option<GoldCounts>,
    /// The kinds of the last utterances (table 2). `None` if no dialogue has a kind.
    pub kinds: Option<Vec<KindCount>>,
}

impl RelevanceReport {
    /// Describes the dialogues of a file. A confidence of at least `threshold` is relevant. `kinds` has the kinds of last utterances
    /// by dialogue id; the field `kind` of a dialogue wins.
    ///
    /// # Errors
    /// [`Error::Argument`] for an unknown kind in the field `kind`.
    pub fn of(
        dialogues: &Dialogues,
        threshold: f64,
        kinds: &FxHashMap<String, UtteranceKind>,
    ) -> Result<Self> {
        let relevant: Vec<Relevant> =
            dialogues.0.iter().map(|(_, dialogue)| Relevant::of(dialogue, threshold)).collect();
        let mut histogram = vec![0; relevant.iter().map(|own| own.places.len() + 1).max().unwrap_or(0)];
        for own in &relevant {
            histogram[own.places.len()] += 1;
        }
        let with = |count: usize| histogram.get(count).copied().unwrap_or(0);
        let mut by_kind: BTreeMap<UtteranceKind, Vec<&Relevant>> = BTreeMap::new();
        for ((id, dialogue), own) in dialogues.0.iter().zip(&relevant) {
            let kind = match dialogue.extra.get("kind").and_then(serde_json::Value::as_str) {
                Some(name) => Some(name.parse().map_err(|message| {
                    Error::Argument(format!("dialogue `{id}`: field `kind`: {message}"))
                })?),
                None => kinds.get(id).copied(),
            };
            if let Some(kind) = kind {
                by_kind.entry(kind).or_default().push(own);
            }
        }
        let known: usize = by_kind.values().map(Vec::len).sum();
        let kind = |(kind, own): (UtteranceKind, Vec<&Relevant>)| KindCount {
            kind,
            dialogues: own.len(),
            share: Measure::share(own.len(), known),
            topics: topics(own.into_iter()),
        };
        Ok(Self {
            dialogues: relevant.len(),
            sentences: dialogues.0.iter().map(|(_, dialogue)| dialogue.annotated_sentences.len()).sum(),
            third_quartile: dialogues.third_quartile().map_or_else(Measure::default, Measure::from),
            threshold,
            mean_relevant: Measure::mean(relevant.iter().map(|own| own.places.len() as f64)),
            with_none: with(0),
            with_one: with(1),
            with_more: histogram.iter().skip(2).sum(),
            topics: topics(relevant.iter()),
            gold: gold(dialogues, &relevant),
            kinds: (known > 0).then(|| by_kind.into_iter().map(kind).collect()),
            histogram,
        })
    }

    /// What the file lacks, and the tables that are left out for that reason.
    pub fn left_out(&self) -> Vec<&'static str> {
        let mut left_out = Vec::new();
        if self.gold.is_none() {
            left_out.push("no dialogue has `gold_sentence`, so the counts of gold sentences are left out");
        }
        if self.kinds.is_none() {
            left_out.push("no dialogue has a `kind`, so the table of last utterances is left out");
        }
        left_out
    }
}

impl fmt::Display for RelevanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dialogues, sentences, third_quartile, threshold, mean_relevant, .. } = self;
        writeln!(
            f,
            "{}, {}, third quartile of confidences {third_quartile:.2}",
            counted(*dialogues as u64, "dialogue"),
            counted(*sentences as u64, "sentence")
        )?;
        writeln!(
            f,
            "relevant from {threshold}: {mean_relevant:.2} a dialogue; none in {}, one in {}, more in {}",
            self.with_none, self.with_one, self.with_more
        )?;
        writeln!(f, "relevant sentences: dialogues")?;
        for (count, dialogues) in self.histogram.iter().enumerate() {
            writeln!(f, "{count:>4} {dialogues:>5}")?;
        }
        write!(f, "topics of several relevant sentences: {}", Topics(&self.topics))?;
        if let Some(gold) = &self.gold {
            let GoldCounts { among_candidates, only_relevant, below_threshold, with_alternative, .. } = gold;
            write!(
                f,
                "\ngold sentence: in {} dialogues, among the candidates in {among_candidates}; the only relevant one in \
                 {only_relevant}; not relevant in {below_threshold}, of which {with_alternative} have another",
                gold.dialogues
            )?;
        }
        for kind in self.kinds.iter().flatten() {
            write!(
                f,
                "\nlast utterance {}: {} dialogues, {:.0} %; topics: {}",
                kind.kind,
                kind.dialogues,
                kind.share.percent(),
                Topics(&kind.topics)
            )?;
        }
        self.left_out().into_iter().try_for_each(|text| write!(f, "\n{text}"))
    }
}

/// Prints counts by number of topics.
struct Topics<'a>(&'a [TopicCount]);

impl fmt::Display for Topics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, TopicCount { topics, dialogues, sentences }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(
                f,
                "{comma}{topics}: {} with {}",
                counted(*dialogues as u64, "dialogue"),
                counted(*sentences as u64, "sentence")
            )?;
        }
        if self.0.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// The relevant sentences of a dialogue.
struct Relevant {
    /// Their indices.
    places: Vec<usize>,
    /// The number of their articles.
    topics: usize,
}

impl Relevant {
    fn of(dialogue: &Dialogue, threshold: f64) -> Self {
        let sentences = dialogue.annotated_sentences.iter().enumerate();
        let (places, topics): (Vec<usize>, Vec<String>) = sentences
            .filter(|(_, sentence)| sentence.confidence >= threshold)
            .map(|(at, sentence)| (at, sentence.article.clone().unwrap_or_else(|| sentence.parts().0)))
            .unzip();
        Self { places, topics: topics.into_iter().collect::<FxHashSet<_>>().len() }
    }
}

fn topics<'a>(relevant: impl Iterator<Item = &'a Relevant>) -> Vec<TopicCount> {
    let mut counts: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for own in relevant.filter(|own| own.places.len() > 1) {
        let (dialogues, sentences) = counts.entry(own.topics).or_default();
        *dialogues += 1;
        *sentences += own.places.len();
    }
    let count = |(topics, (dialogues, sentences))| TopicCount { topics, dialogues, sentences };
    counts.into_iter().map(count).collect()
}

fn gold(dialogues: &Dialogues, relevant: &[Relevant]) -> Option<GoldCounts> {
    let mut counts = GoldCounts {
        dialogues: 0,
        among_candidates: 0,
        only_relevant: 0,
        below_threshold: 0,
        with_alternative: 0,
    };
    for ((_, dialogue), own) in dialogues.0.iter().zip(relevant) {
        counts.dialogues += usize::from(dialogue.gold_sentence().is_some());
        let gold = dialogue.gold_places();
        if gold.is_empty() {
            continue;
        }
        let is_relevant = gold.iter().any(|at| own.places.contains(at));
        // A copy of the gold sentence is no alternative.
        let has_other = own.places.iter().any(|at| !gold.contains(at));
        counts.among_candidates += 1;
        counts.only_relevant += usize::from(is_relevant && !has_other);
        counts.below_threshold += usize::from(!is_relevant);
        counts.with_alternative += usize::from(!is_relevant && has_other);
    }
    (counts.dialogues > 0).then_some(counts)
}

/// Reads the kinds of last utterances from a CSV file with the columns `id` (of a dialogue) and `kind`.
///
/// # Errors
/// Those of [`csv::Table::read`]; [`Error::Record`] for a missing column, an unknown kind, and an id on two lines.
pub fn read_kinds(path: impl AsRef<Path>) -> Result<FxHashMap<String, UtteranceKind>> {
    let path = path.as_ref();
    let table = csv::Table::read(path)?;
    let (id, kind) = (table.column("id")?, table.column("kind")?);
    let mut kinds = FxHashMap::default();
    for row in table.rows() {
        let wrong = |field: &str, message: String| Error::record(path, row.line, field, message);
        let (id, kind) = (row.cell(id).trim(), row.cell(kind).trim());
        let kind = kind.parse().map_err(|message| wrong("kind", message))?;
        if kinds.insert(id.to_owned(), kind).is_some() {
            return Err(wrong("id", format!("expected different dialogue ids, found `{id}` twice")));
        }
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A dialogue of sentences `T<topic> <separator> S<index>.` with these topics and confidences.
    fn dialogue(sentences: &[(usize, f64)], gold: Option<&str>, kind: Option<&str>) -> Value {
        let each = sentences.iter().enumerate();
        let sentence = |(at, (topic, confidence)): (usize, &(usize, f64))| json!({ "label": format!("T{topic} <knowledge_separator> S{at}."), "confidence": confidence });
        let mut dialogue = json!({ "turns": [], "topic": "", "annotated_sentences": each.map(sentence).collect::<Vec<_>>() });
        if let Some(gold) = gold {
            dialogue["gold_sentence"] = gold.into();
        }
        if let Some(kind) = kind {
            dialogue["kind"] = kind.into();
        }
        dialogue
    }

    fn read(dialogues: Value) -> Dialogues {
        serde_json::from_value(dialogues).unwrap()
    }

    fn report(dialogues: Value) -> RelevanceReport {
        RelevanceReport::of(&read(dialogues), 0.6, &FxHashMap::default()).unwrap()
    }

    #[test]
    fn relevant_sentences_are_counted_by_dialogue_and_by_topic() {
        let found = report(json!({
            "a": dialogue(&[(0, 0.6), (0, 0.9), (1, 0.1)], None, None),
            "b": dialogue(&[(0, 0.6), (1, 0.7), (2, 0.8)], None, None),
            "c": dialogue(&[(0, 1.0)], None, None),
            "d": dialogue(&[(0, 0.5), (1, 0.0)], None, None),
        }));
        assert_eq!((found.dialogues, found.sentences), (4, 9));
        assert_eq!((found.with_none, found.with_one, found.with_more), (1, 1, 2));
        assert_eq!(found.histogram, [1, 1, 1, 1]);
        assert_eq!(found.mean_relevant, 1.5.into());
        // 0, 0.1, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9, 1: the sixth step of eight.
        assert_eq!(found.third_quartile, 0.8.into());
        let one = TopicCount { topics: 1, dialogues: 1, sentences: 2 };
        let three = TopicCount { topics: 3, dialogues: 1, sentences: 3 };
        assert_eq!(found.topics, [one, three]);
        assert_eq!((found.gold, found.kinds.as_ref()), (None, None));
        let text = found.to_string();
        assert!(
            text.contains("relevant from 0.6: 1.50 a dialogue; none in 1, one in 1, more in 2"),
            "{text}"
        );
        assert!(text.contains("the table of last utterances is left out"), "{text}");
        let none = report(json!({}));
        assert_eq!((none.histogram.len(), none.with_more, none.mean_relevant), (0, 0, Measure::default()));
    }

    #[test]
    fn gold_sentences_are_counted_as_in_the_paper() {
        let gold = |at: usize| Some(format!("T0 <knowledge_separator> S{at}."));
        let of =
            |sentences: &[(usize, f64)], gold: Option<String>| dialogue(sentences, gold.as_deref(), None);
        let found = report(json!({
            "only relevant": of(&[(0, 0.6), (0, 0.5)], gold(0)),
            "relevant with others": of(&[(0, 0.6), (0, 0.7)], gold(0)),
            "below, with another": of(&[(0, 0.5), (0, 0.7)], gold(0)),
            "below, alone": of(&[(0, 0.5), (0, 0.1)], gold(0)),
            "not a candidate": of(&[(0, 0.9)], gold(7)),
            "without": of(&[(0, 0.9)], None),
        }));
        let expected = GoldCounts {
            dialogues: 5,
            among_candidates: 4,
            only_relevant: 1,
            below_threshold: 2,
            with_alternative: 1,
        };
        assert_eq!(found.gold, Some(expected));
    }

    #[test]
    fn a_copy_of_the_gold_sentence_is_no_alternative() {
        let label = "T0 <knowledge_separator> S0.";
        let sentence = |confidence: f64| json!({ "label": label, "confidence": confidence });
        let dialogue = json!({ "turns": [], "topic": "", "gold_sentence": label,
            "annotated_sentences": [sentence(0.9), sentence(0.7)] });
        let gold = report(json!({ "d": dialogue })).gold.unwrap();
        assert_eq!((gold.among_candidates, gold.only_relevant, gold.below_threshold), (1, 1, 0));
    }

    #[test]
    fn kinds_come_from_the_field_or_from_a_table() {
        let all = json!({
            "a": dialogue(&[(0, 0.6), (0, 0.9)], None, Some("factual")),
            "b": dialogue(&[(0, 0.6), (1, 0.7)], None, None),
            "c": dialogue(&[(0, 1.0)], None, None),
            "d": dialogue(&[], None, None),
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kinds.csv");
        std::fs::write(&path, "id,kind\na,general\nb,factual\nc , personal\n").unwrap();
        let kinds = read_kinds(&path).unwrap();
        let found = RelevanceReport::of(&read(all), 0.6, &kinds).unwrap().kinds.unwrap();
        let counts: Vec<(UtteranceKind, usize)> =
            found.iter().map(|kind| (kind.kind, kind.dialogues)).collect();
        assert_eq!(counts, [(UtteranceKind::Personal, 1), (UtteranceKind::Factual, 2)]);
        assert_eq!(found[1].share, Measure::share(2, 3));
        let count = |topics| TopicCount { topics, dialogues: 1, sentences: 2 };
        assert_eq!((&found[0].topics[..], &found[1].topics[..]), (&[][..], &[count(1), count(2)][..]));
        for (text, part) in [
            ("id,kind\na,rude\n", "2: field `kind`: "),
            ("a,general\n", "1: field `id`: expected a column"),
            (
                "id;kind\na;general\na;factual\n",
                "3: field `id`: expected different dialogue ids, found `a` twice",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = read_kinds(&path).unwrap_err().to_string();
            assert!(message.contains("kinds.csv:") && message.contains(part), "{message}");
        }
        let wrong = read(json!({ "a": dialogue(&[], None, Some("rude")) }));
        let error = RelevanceReport::of(&wrong, 0.6, &FxHashMap::default()).unwrap_err().to_string();
        assert!(error.contains("dialogue `a`: field `kind`: expected personal"), "{error}");
    }
}
