//! Explains one record or text: its query, retrieved passages, prompts, answers and evidence.

use std::fmt;

use serde::Serialize;
use sporran_generator::{Candidate, Request};
use sporran_kilt::{FilePlace, Hit, Passage, PassageId, Provenance, observe::Observer};

use crate::{
    Error, Result,
    tasks::loader::Asked,
    workflows::answer::{
        assemble::assemble,
        evidence::{provenance, source},
        options::Options,
        trace::{Step, page_name},
    },
};

/// The explanation of a record or a text.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The id of the record; `None` for a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The input of the record, or the text.
    pub input: String,
    /// The trace of retrieval; `None` without a retriever.
    pub retrieval: Option<Step>,
    /// The prompts of the generator: one, or one for each passage; empty if the generator does not support it.
    pub prompts: Vec<String>,
    /// The answers with scores, best first.
    pub answers: Vec<Answer>,
    /// The provenance of the prediction, best first.
    pub evidence: Vec<Evidence>,
}

/// An answer with its score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// The score.
    pub score: f32,
}

/// An item of provenance.
#[derive(Clone, Debug, Serialize)]
pub struct Evidence {
    /// The page's id.
    pub wikipedia_id: String,
    /// The page's title.
    pub title: String,
    /// The passage's section.
    pub section: String,
    /// The passage's first and last paragraph.
    pub paragraphs: (u32, u32),
    /// The place in a file, if the record of the page names one.
    #[serde(flatten)]
    pub file: FilePlace,
    /// The passage's text. Its first occurrence of the answer is between `>>>` and `<<<`.
    pub text: String,
}

/// Explains the run of a record or a text.
///
/// # Errors
/// Errors of the config, its files, its indexes or its models; [`Error::Config`] if no task file has the record;
/// [`sporran_kilt::Error::Argument`] for a blank text.
pub fn explain(
    options: &Options,
    asked: Asked<'_>,
    hits: usize,
    observe: &mut Observer<'_>,
) -> Result<Explanation> {
    let query = asked.query(&options.general.tasks)?;
    let assembly = assemble(options, observe)?;
    let shaped = options.general.for_retrieval(&query);
    let (mut ranking, mut retrieval): (Vec<Hit>, Option<Step>) = (Vec::new(), None);
    if let (Some(retriever), Some(store)) = (&assembly.retriever, &assembly.store) {
        let depth = options.general.evidence.depth;
        retrieval = Some(Step::new(retriever.trace(&shaped, hits)?, hits, store));
        ranking = retriever.retrieve(std::slice::from_ref(&shaped), depth)?.pop().unwrap_or_default();
    }
    let (mut prompts, mut answers, mut used) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(generator) = &assembly.generator {
        let read = |hit: &Hit| Some((assembly.store.as_ref()?.passage(hit.passage), hit.score));
        let passages: Vec<(Passage, f32)> =
            ranking.iter().take(generator.passages()).filter_map(read).collect();
        let candidates: Vec<Candidate<'_>> =
            passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect();
        let request = Request { query: &query, passages: &candidates };
        prompts = generator.prompts(&request)?;
        let generation = generator.generate(&[request])?.pop().ok_or_else(|| {
            let message = "the generator gave no answer".to_owned();
            Error::Kilt(sporran_kilt::Error::Argument(message))
        })?;
        answers.push(Answer { text: generation.text, score: generation.score });
        let others = generation.alternatives.into_iter().map(|(text, score)| Answer { text, score });
        answers.extend(others);
        used = generation.evidence.iter().filter_map(|&at| Some(ranking.get(at)?.passage)).collect();
    }
    let answer = answers.first().map_or("", |answer| answer.text.as_str());
    let evidence = match &assembly.store {
        None => Vec::new(),
        Some(store) => {
            let (used, source) = ((answer, &used[..]), source(options, &query));
            let items = provenance(store, &ranking, used, source, &options.general.evidence);
            items.iter().filter_map(|item| evidence_of(store, item, answer)).collect()
        }
    };
    assembly.sound()?;
    let id = matches!(asked, Asked::Record(_)).then(|| query.id.text().into_owned());
    let input = query.text.clone();
    Ok(Explanation { id, input, retrieval, prompts, answers, evidence })
}

fn evidence_of(store: &sporran_kilt::PassageStore, item: &Provenance, answer: &str) -> Option<Evidence> {
    let id = item.wikipedia_id.as_ref()?.text().into_owned();
    let page = store.page_by_id(&id)?;
    let number = |id: &Option<sporran_kilt::Id>| id.as_ref().and_then(|id| id.text().parse::<u32>().ok());
    let (from, to) = (number(&item.start_paragraph_id)?, number(&item.end_paragraph_id)?);
    let start = number(&item.start_character)?;
    let passage = store
        .passages_of(page)
        .map(|passage| store.passage(PassageId(passage)))
        .find(|passage| (passage.start_paragraph, passage.start_character) == (from, start))?;
    let (title, section) = (passage.title.clone(), passage.section.clone());
    let text = marked(&passage.text, answer);
    Some(Evidence { wikipedia_id: id, title, section, paragraphs: (from, to), file: passage.file, text })
}

/// The text with marks around the first occurrence of `answer`. Ignores case.
fn marked(text: &str, answer: &str) -> String {
    let answer: Vec<char> = answer.trim().chars().flat_map(char::to_lowercase).collect();
    let chars: Vec<char> = text.chars().collect();
    // Takes one letter of lower cases with two letters, to keep the offsets.
    let lower: Vec<char> = chars.iter().map(|c| c.to_lowercase().next().unwrap_or(*c)).collect();
    if answer.is_empty() || answer.len() > lower.len() {
        return text.to_owned();
    }
    let is_word = |at: Option<&char>| at.is_some_and(|c| c.is_alphanumeric());
    let occurs = |at: &usize| {
        let end = at + answer.len();
        lower[*at..end] == answer[..]
            && !is_word(at.checked_sub(1).and_then(|before| lower.get(before)))
            && !is_word(lower.get(end))
    };
    match (0..=lower.len() - answer.len()).find(occurs) {
        None => text.to_owned(),
        Some(at) => {
            let part = |range: std::ops::Range<usize>| chars[range].iter().collect::<String>();
            let end = at + answer.len();
            format!("{}>>>{}<<<{}", part(0..at), part(at..end), part(end..chars.len()))
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => writeln!(f, "record {id}\n{}", self.input)?,
            None => writeln!(f, "question\n{}", self.input)?,
        }
        if let Some(step) = &self.retrieval {
            write!(f, "\nretrieval\n{step}")?;
        }
        for (number, prompt) in self.prompts.iter().enumerate() {
            writeln!(f, "\nprompt {}\n{prompt}", number + 1)?;
        }
        if !self.answers.is_empty() {
            writeln!(f, "\nanswers")?;
        }
        for answer in &self.answers {
            writeln!(f, "{:10.4}  {}", answer.score, answer.text)?;
        }
        if !self.evidence.is_empty() {
            writeln!(f, "\nevidence")?;
        }
        for item in &self.evidence {
            let (from, to) = item.paragraphs;
            let place = if item.file.is_empty() { String::new() } else { format!("{}, ", item.file) };
            let section = if item.section.is_empty() { String::new() } else { format!("{}, ", item.section) };
            let page = page_name(&item.title, &item.wikipedia_id);
            writeln!(f, "  {page}, {place}{section}paragraphs {from} to {to}")?;
            writeln!(f, "    {}", item.text.replace('\n', " "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn the_answer_is_marked_at_word_boundaries() {
        assert_eq!(marked("The cat sat; a Cat.", "cat"), "The >>>cat<<< sat; a Cat.");
        assert_eq!(marked("concatenate the CAT", "cat"), "concatenate the >>>CAT<<<");
        assert_eq!(marked("ÉCOLE à Paris", "école"), ">>>ÉCOLE<<< à Paris");
        assert_eq!(marked("no", "none"), "no");
        assert_eq!(marked("none", ""), "none");
    }
}
