//! Zero-shot relation extraction (Levy et al. 2017).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::Layout;
use crate::{
    Result,
    mapping::{
        own::{Answer, Claim, Own, Piece, distinct, distinct_texts},
        sample,
        source::{Source, Take},
    },
    zsre::{self, SlotQuestion},
};

/// Lines of relation, question, subject, sentence and answers, between tabs. Lines without answers are negative and
/// are skipped. The lines of a subject and a relation are one record, with all questions in `meta`.
///
/// The relations are divided at random: a tenth is `dev`, a fifth `test`, the rest `train`. Of the dataset's 120
/// relations these are 12, 24 and 84, as in the paper.
pub(super) const LAYOUT: Layout = Layout {
    name: "zsre",
    about: "Levy et al.'s tab-separated lines; no negatives, one record a pair, relations divided 84/12/24 by --seed",
    options: &["seed"],
    read,
};

/// The lines of a subject and a relation.
#[derive(Default)]
struct Pair {
    questions: Vec<String>,
    /// Answers in the order of the file, each with its sentences.
    answers: Vec<(String, Vec<String>)>,
}

impl Pair {
    fn add(&mut self, line: &SlotQuestion) {
        self.questions.push(line.question());
        for answer in &line.answers {
            let answer = answer.trim();
            let at = self.answers.iter().position(|(known, _)| known == answer).unwrap_or_else(|| {
                self.answers.push((answer.to_owned(), Vec::new()));
                self.answers.len() - 1
            });
            self.answers[at].1.push(line.sentence.clone());
        }
    }

    fn record(self, subject: &str, relation: &str) -> Own {
        let claim = |(answer, sentences): (String, Vec<String>)| Claim {
            answer: Answer::Text(answer),
            // The subject is the title of the sentence's page.
            evidence: distinct(sentences.into_iter().map(|sentence| vec![Piece::text(subject, sentence)])),
            ..Claim::default()
        };
        let claims = self.answers.into_iter().map(claim).collect();
        let input = format!("{subject} [SEP] {relation}");
        let id = blake3::hash(input.as_bytes()).to_hex()[..16].to_owned();
        let meta = json!({ "template_questions": distinct_texts(self.questions) });
        Own { meta: Some(meta), ..Own::new(id, input, claims) }
    }
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    let mut relations: BTreeSet<String> = BTreeSet::new();
    let mut pairs: BTreeMap<(String, String), Pair> = BTreeMap::new();
    for path in source.inputs {
        for line in zsre::load(path)? {
            // A relation with negative lines only has no record, but belongs to a split.
            if !relations.contains(&line.relation) {
                relations.insert(line.relation.clone());
            }
            if !line.answers.is_empty() {
                let key = (line.relation.clone(), line.entity.trim().to_owned());
                pairs.entry(key).or_default().add(&line);
            }
        }
    }
    let count = relations.len();
    let (dev, test) = ((count + 5) / 10, (count + 2) / 5);
    let members = sample::members(source.options.seed(), count, dev, test, source.split);
    let kept: BTreeSet<String> = relations
        .into_iter()
        .zip(members)
        .filter_map(|(relation, is_member)| is_member.then_some(relation))
        .collect();
    for ((relation, subject), pair) in pairs {
        if kept.contains(&relation) {
            take(Some(pair.record(&subject, &relation)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{claim, read as read_all},
        *,
    };
    use crate::{Split, mapping::options::LayoutOptions};

    #[test]
    fn a_pair_is_a_record_with_its_questions() {
        // Two relations: of two, none is in `dev` and none in `test`.
        let text = "educated_at\tWhere did XXX study?\tAnn Lund\tLund studied in Oslo and Bonn.\tOslo\tBonn\n\
                    educated_at\tWhich school did XXX attend?\tAnn Lund\tLund studied in Oslo and Bonn.\tOslo\tBonn\n\
                    educated_at\tWhere did XXX study?\tAnn Lund\tShe went to Oslo.\tOslo\n\
                    educated_at\tWhere did XXX study?\tAnn Lund\tShe sang.\n\
                    author\tWho wrote XXX?\tEmma\tEmma is long.\n";
        let found = read_all(LAYOUT, &[text], Split::Train, &LayoutOptions::default()).unwrap();
        let claims = vec![
            claim("Oslo", &[&["Ann Lund|Lund studied in Oslo and Bonn."], &["Ann Lund|She went to Oslo."]]),
            claim("Bonn", &[&["Ann Lund|Lund studied in Oslo and Bonn."]]),
        ];
        let own = found[0].as_ref().unwrap();
        assert_eq!((own.input.as_str(), &own.claims), ("Ann Lund [SEP] educated_at", &claims));
        let questions = ["Where did Ann Lund study?", "Which school did Ann Lund attend?"];
        assert_eq!(own.meta, Some(json!({ "template_questions": questions })));
        assert_eq!((found.len(), own.id.text().len()), (1, 16));
    }

    #[test]
    fn relations_are_divided_84_12_24_and_the_files_are_one_dataset() {
        let line = |at: usize| format!("r{at}\tWho is XXX?\tS\tS is a{at}.\ta{at}\n");
        let [first, second] = [0..70, 70..120].map(|range| range.map(line).collect::<String>());
        let of = |split| {
            let options = LayoutOptions { seed: Some(7), ..LayoutOptions::default() };
            let found = read_all(LAYOUT, &[&first, &second], split, &options).unwrap();
            found.into_iter().map(|own| own.unwrap().input).collect::<BTreeSet<String>>()
        };
        let [train, dev, test] = [Split::Train, Split::Dev, Split::Test].map(of);
        assert_eq!((train.len(), dev.len(), test.len()), (84, 12, 24));
        assert_eq!(train.iter().chain(&dev).chain(&test).collect::<BTreeSet<_>>().len(), 120);
    }

    #[test]
    fn wrong_lines_are_named() {
        let text = "author\tWho wrote XXX?\tEmma\tEmma is long.\nauthor\tWho?\tEmma\tIt is.\tx\n";
        let message =
            read_all(LAYOUT, &[text], Split::Dev, &LayoutOptions::default()).unwrap_err().to_string();
        assert!(message.contains("in0:2: field `question`"), "{message}");
    }
}
