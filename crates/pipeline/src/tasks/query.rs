//! Conversion of a record's input to the retriever's query.

use sporran_generator::reader_question;
use sporran_kilt::{Query, Task, split_mention};

use crate::tasks::options::QueryOptions;

const SEPARATOR: &str = "[SEP]";

/// The query for the retriever. Entity linking keeps the mention and the words around it. Slot filling drops
/// its separator, or becomes a template question that `seed` draws. Other queries are unchanged.
pub(crate) fn for_retrieval(query: &Query, options: &QueryOptions, seed: u64) -> Query {
    let task = query.dataset.map(|dataset| dataset.task());
    let text = if options.template_questions && !query.template_questions.is_empty() {
        reader_question(query, seed)
    } else if let Some((before, mention, after)) = split_mention(&query.text) {
        around_mention(before, mention, after, options)
    } else if task == Some(Task::SlotFilling) || query.text.contains(SEPARATOR) {
        query.text.replace(SEPARATOR, " ")
    } else {
        query.text.clone()
    };
    let original = (text != query.text).then(|| query.input().to_owned()).or_else(|| query.original.clone());
    Query { text, original, ..query.clone() }
}

fn around_mention(before: &str, mention: &str, after: &str, options: &QueryOptions) -> String {
    let before: Vec<&str> = before.split_whitespace().collect();
    let kept = &before[before.len().saturating_sub(options.mention_context_words)..];
    let after = after.split_whitespace().take(options.mention_context_words);
    let mentions = std::iter::repeat_n(mention, options.mention_weight.max(1));
    let mark = |at: usize| options.mention_marks.as_ref().map(|marks| marks[at].as_str());
    let marked = mark(0).into_iter().chain(mentions).chain(mark(1));
    kept.iter().copied().chain(marked).chain(after).collect::<Vec<_>>().join(" ")
}

/// Whether a query is for entity linking of a tagged mention.
pub(crate) fn is_entity_linking(query: &Query) -> bool {
    query.dataset.map_or_else(|| query.mention.is_some(), |dataset| dataset.task() == Task::EntityLinking)
}

#[cfg(test)]
mod tests {
    use sporran_kilt::Dataset;

    use super::*;

    fn shaped_as(options: QueryOptions, text: &str, dataset: Dataset) -> String {
        let query = Query { dataset: Some(dataset), ..Query::of_text(1i64, text) };
        for_retrieval(&query, &options, 1).text
    }

    fn shaped(text: &str, dataset: Dataset) -> String {
        let options = QueryOptions { mention_context_words: 2, mention_weight: 2, ..QueryOptions::default() };
        shaped_as(options, text, dataset)
    }

    #[test]
    fn entity_linking_keeps_the_mention_and_its_context() {
        let text = "a b c [START_ENT] New York [END_ENT] d e f";
        assert_eq!(shaped(text, Dataset::Wned), "b c New York New York d e");
    }

    #[test]
    fn marks_stand_around_the_mention() {
        let marks = ["[unused0]", "[unused1]"].map(str::to_owned);
        let options = QueryOptions {
            mention_context_words: 1,
            mention_weight: 1,
            mention_marks: Some(marks),
            ..QueryOptions::default()
        };
        let text = "b c [START_ENT] New York [END_ENT] d e";
        let expected = "c [unused0] New York [unused1] d";
        assert_eq!(shaped_as(options.clone(), text, Dataset::Wned), expected);
        assert_eq!(shaped_as(options, "who?", Dataset::Nq), "who?");
    }

    #[test]
    fn slot_filling_loses_its_separator_and_questions_stay() {
        assert_eq!(shaped("Rome [SEP] country", Dataset::Trex), "Rome   country");
        assert_eq!(shaped("who?", Dataset::Nq), "who?");
    }

    #[test]
    fn a_template_question_replaces_subject_and_relation_if_asked_for() {
        let templates = ["Where is Rome?", "Which country has Rome?"].map(str::to_owned).to_vec();
        let query = Query {
            dataset: Some(Dataset::StructuredZeroshot),
            template_questions: templates.clone(),
            ..Query::of_text(1i64, "Rome [SEP] country")
        };
        let options = QueryOptions { template_questions: true, ..QueryOptions::default() };
        let asked: Vec<String> = (0..20).map(|seed| for_retrieval(&query, &options, seed).text).collect();
        assert!(templates.iter().all(|template| asked.contains(template)), "{asked:?}");
        let found = for_retrieval(&query, &options, 3);
        // The reader gets the same question, and the generator the input.
        assert_eq!(
            (found.text.as_str(), found.input()),
            (&*reader_question(&query, 3), "Rome [SEP] country")
        );
        assert_eq!(for_retrieval(&query, &QueryOptions::default(), 3).text, "Rome   country");
        assert_eq!(shaped_as(options, "Rome [SEP] country", Dataset::Trex), "Rome   country");
    }
}
