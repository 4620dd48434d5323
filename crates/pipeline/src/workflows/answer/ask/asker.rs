//! A system that answers questions with citations.

use std::convert::Infallible;

use sporran_generator::{GeneratorOptions, Sink};
use sporran_kilt::{
    Hit, Passage, PassageStore, Query,
    observe::{Event, Observer},
};

use super::{
    answer::{CitedAnswer, CitedPassage, CitedSentence},
    citations::{Part, Support, cited},
    conversation::Conversation,
    judge::Judge,
    options::AskOptions,
    place::{Piece, has_lines, headings, pieces, place},
};
use crate::{
    Result,
    source::cache,
    tasks::loader::Asked,
    workflows::answer::{assemble::Assembly, options::Options, system::System},
};

/// Answers questions over documents. It holds no folder of a run, so servers and other programs can keep it open.
///
/// ```no_run
/// use sporran_pipeline::workflows::answer::{AskOptions, Asker};
///
/// let options = AskOptions::new(vec!["notes".into()], "cache".into());
/// let asker = Asker::open(&options, &mut |_| {})?;
/// let answer = asker.ask("Where was Mira Oberlin born?")?;
/// for passage in &answer.evidence {
///     println!("{}: {}", passage.file, &passage.text[passage.highlight.clone()]);
/// }
/// # Ok::<(), sporran_pipeline::Error>(())
/// ```
pub struct Asker {
    system: System,
    judge: Option<Judge>,
    passages: usize,
}

/// The queries of a question that refers to earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct FollowUpQueries {
    /// The question with the questions that it refers to, and with short answers, for the retriever.
    pub search: Query,
    /// The text for the generator: with the earlier questions and answers before the question, or that of the search for a
    /// generator that reads no conversations.
    pub read: Query,
}

impl Asker {
    /// Opens sources with their models. Builds indexes that are missing or whose files have changed, and removes those of
    /// the files' earlier contents. A note names the folder of the indexes and its size.
    ///
    /// # Errors
    /// Those of [`AskOptions::resolve`], and errors of the sources, the indexes and the models.
    pub fn open(options: &AskOptions, observe: &mut Observer<'_>) -> Result<Self> {
        let resolved = options.resolve()?;
        let passages = options.passages;
        let judge = |model| Judge::open(model, options.precision, options.device);
        let judge = options.verifier.clone().map(judge).transpose()?;
        let indexes = resolved.general.source.as_ref().map(|source| source.indexes.clone());
        let system = System::open(resolved, observe).inspect_err(|_| {
            // A source without pages has no indexes. A folder with indexes is not empty, and stays.
            let _ = indexes.filter(|_| options.config().is_none()).map(std::fs::remove_dir);
        })?;
        note_indexes(options, &system.assembly, observe)?;
        Ok(Self { system, judge, passages })
    }

    /// The config of the system.
    #[must_use]
    pub fn options(&self) -> &Options {
        self.system.options()
    }

    /// Whether a generator writes the answers.
    #[must_use]
    pub fn generates(&self) -> bool {
        self.system.assembly.generator.is_some()
    }

    /// Answers a question.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Argument`] for a blank question, and those of [`System::answer`].
    pub fn ask(&self, question: &str) -> Result<CitedAnswer> {
        self.ask_with(question, None)
    }

    /// [`ask`](Self::ask), with a sink that receives the text of the generator, without checked citations, and can end it.
    ///
    /// # Errors
    /// As there.
    pub fn ask_into(&self, question: &str, sink: &dyn Sink) -> Result<CitedAnswer> {
        self.ask_with(question, Some(sink))
    }

    /// Answers a question of a conversation and adds it. A question that refers to earlier ones, such as `and who owns it?`, is
    /// searched for together with them, and the generator reads them with their answers. Another question is answered as
    /// [`ask`](Self::ask) does.
    ///
    /// # Errors
    /// As there.
    pub fn ask_in(&self, question: &str, conversation: &mut Conversation) -> Result<CitedAnswer> {
        let answer = match self.follow_up(question, conversation)? {
            None => self.ask(question)?,
            Some(FollowUpQueries { search, read }) => {
                let hits = self.system.retrieve(std::slice::from_ref(&search))?;
                let written = self.system.generate(std::slice::from_ref(&read), &hits, None)?.pop().flatten();
                let written = written.map(|generation| generation.text).unwrap_or_default();
                let hits = hits.into_iter().next().unwrap_or_default();
                let answer = self.cite(&search, &hits, &written, None)?;
                CitedAnswer { question: question.trim().to_owned(), ..answer }
            }
        };
        conversation.add(&answer);
        Ok(answer)
    }

    /// The queries of a question that refers to earlier ones of a conversation; `None` for one that stands alone.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn follow_up(&self, question: &str, conversation: &Conversation) -> Result<Option<FollowUpQueries>> {
        let query = self.query(question)?;
        let queries = conversation.follow_up(&query.text).map(|follow_up| {
            let search = Query { text: follow_up.searched(), ..query.clone() };
            let reads_turns = matches!(
                self.options().generator,
                Some(GeneratorOptions::Causal(_) | GeneratorOptions::Remote(_))
            );
            let text = if reads_turns { follow_up.written() } else { search.text.clone() };
            FollowUpQueries { search, read: Query { text, ..query.clone() } }
        });
        Ok(queries)
    }

    /// The system that retrieves and generates, for callers that order its steps themselves: [`query`](Self::query), a search,
    /// a generation, [`cite`](Self::cite).
    #[must_use]
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The query of a question.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Argument`] for a blank question.
    pub fn query(&self, question: &str) -> Result<Query> {
        Asked::Text(question.trim()).query(&self.options().general.tasks)
    }

    fn ask_with(&self, question: &str, sink: Option<&dyn Sink>) -> Result<CitedAnswer> {
        let query = self.query(question)?;
        let queries = std::slice::from_ref(&query);
        let answered = match sink {
            None => self.system.answer(queries)?,
            Some(sink) => self.system.answer_into(queries, sink)?,
        };
        let (answer, hits) = answered
            .into_iter()
            .next()
            .map_or_else(Default::default, |answered| (answered.prediction.answer, answered.hits));
        self.cite(&query, &hits, &answer, None)
    }

    /// The answer of a generator with its citations, and the passages of a ranking as evidence: `top` of them, by default as
    /// many as the options of the asker say.
    ///
    /// # Errors
    /// Errors of the verifier, and damage of the passage store.
    pub fn cite(&self, query: &Query, hits: &[Hit], answer: &str, top: Option<usize>) -> Result<CitedAnswer> {
        let question = query.text.as_str();
        let store = self.system.assembly.store.as_ref();
        let passage = |hit: &Hit| Some((store?.passage(hit.passage), hit.score));
        let listed = top.unwrap_or(self.passages);
        // The generator may have read more than is listed.
        let most = listed.max(self.passages);
        let mut passages: Vec<(Passage, f32)> = hits.iter().take(most).filter_map(passage).collect();
        let support = Support::new(question, passages.iter().map(|(passage, _)| passage));
        let read: Vec<&Passage> = passages.iter().map(|(passage, _)| passage).collect();
        let (sentences, text) = match &self.judge {
            Some(judge) => cited(answer, |sentence| match support.of(sentence) {
                Some(_) => judge.supporters(sentence, &read).map(Some),
                None => Ok(None),
            })?,
            None => match cited(answer, |sentence| Ok::<_, Infallible>(support.of(sentence))) {
                Ok(found) => found,
                Err(never) => match never {},
            },
        };
        // What is cited is listed.
        let cited = sentences.iter().flat_map(|sentence| &sentence.citations).max().copied();
        passages.truncate(listed.max(cited.unwrap_or(0)));
        let evidence = passages.into_iter().enumerate().filter_map(|(at, found)| {
            let cites = |sentence: &&CitedSentence| sentence.citations.contains(&(at + 1));
            let said: Vec<&str> =
                sentences.iter().filter(cites).map(|sentence| sentence.text.as_str()).collect();
            Some(cited_passage(store?, found, &support, &said.join(" ")))
        });
        let evidence = evidence.collect();
        self.system.assembly.sound()?;
        let is_generated = self.generates();
        Ok(CitedAnswer { question: question.to_owned(), answer: text, evidence, sentences, is_generated })
    }
}

/// Passages that a model read for an answer, with the sentences that support it best.
#[must_use]
pub fn cited_passages(
    store: &PassageStore,
    passages: Vec<(Passage, f32)>,
    question: &str,
    answer: &str,
) -> Vec<CitedPassage> {
    let support = Support::new(question, passages.iter().map(|(passage, _)| passage));
    passages.into_iter().map(|found| cited_passage(store, found, &support, answer)).collect()
}

/// A passage with its place, and with the sentence that supports `said` best.
fn cited_passage(
    store: &PassageStore,
    (mut passage, score): (Passage, f32),
    support: &Support,
    said: &str,
) -> CitedPassage {
    let body = headings(&passage);
    let pieces = pieces(store, &passage);
    let part = |piece: &Piece| Part {
        range: piece.range.start.max(body)..piece.range.end,
        has_lines: has_lines(store, &passage, piece),
    };
    let parts: Vec<Part> = pieces.iter().map(part).filter(|part| !part.range.is_empty()).collect();
    let found = support.highlight(&passage.text, parts, said);
    let highlight = found.start.max(body)..found.end;
    passage.file = place(store, &passage, &pieces, highlight.start);
    CitedPassage::new(passage, score, (body, highlight))
}

/// Notes the use of the cached indexes of sources, and tells their folder. A config's own indexes are not in the cache.
pub(super) fn note_indexes(
    options: &AskOptions,
    assembly: &Assembly,
    observe: &mut Observer<'_>,
) -> Result<()> {
    let store = assembly.store.as_ref().filter(|_| options.config().is_none());
    if let Some((store, folder)) = store.and_then(|store| Some((store, store.folder().parent()?))) {
        let kept =
            assembly.hashes.iter().map(|part| part.path.as_path()).chain(assembly.inputs.collections());
        let bytes = cache::keep((store.folder(), store.hash()), &options.sources, kept)?;
        observe(Event::Note { text: format!("indexes: {} ({})", folder.display(), cache::size(bytes)) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follow_up_is_searched_for_with_its_topic() {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("notes");
        std::fs::create_dir(&notes).unwrap();
        for (name, text) in [
            (
                "bridge.md",
                "# Bridge\n\nThe bridge of Kelso is on the river Tweed. The county owns the bridge.\n",
            ),
            ("mill.md", "# Mill\n\nThe old mill is in Ayr. Mr Holm owns the mill and its wheel.\n"),
            ("inn.md", "# Inn\n\nWho owns the inn? Mrs Berg owns it, and her sister owns the garden.\n"),
        ] {
            std::fs::write(notes.join(name), text).unwrap();
        }
        let options = AskOptions::new(vec![notes], folder.path().join("cache"));
        let asker = Asker::open(&options, &mut |_| {}).unwrap();
        let best = |answer: &CitedAnswer| {
            let found = &answer.evidence[0];
            (
                found.file.rsplit('/').next().unwrap().to_owned(),
                found.text[found.highlight.clone()].to_owned(),
            )
        };
        let mut conversation = Conversation::default();
        let (topic, question) = ("Where is the bridge of Kelso?", "and who owns it?");
        assert_eq!(best(&asker.ask_in(topic, &mut conversation).unwrap()).0, "bridge.md");
        assert_eq!(best(&asker.ask(question).unwrap()).0, "inn.md");
        let answer = asker.ask_in(question, &mut conversation).unwrap();
        assert_eq!(answer.question, question);
        assert_eq!(best(&answer).0, "bridge.md");
        assert_eq!(conversation.carried(), [topic]);
        // A question that stands alone is answered as without a conversation.
        let alone = "Where is the mill?";
        assert_eq!(asker.ask_in(alone, &mut conversation).unwrap(), asker.ask(alone).unwrap());
        assert!(conversation.carried().is_empty());
        assert!(asker.ask_in(" ", &mut conversation).is_err());
    }
}
