//! The encoder-decoder. Its input is a question, its document, and optionally related triples. It generates
//! answers separated by commas.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::DType;
use rayon::prelude::*;
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_config::Document;
use sporran_generator::{GeneratedText, ModelOptions, TextGenerator};
use sporran_kilt::{
    kb::{EntityId, KnowledgeBase, Part, Triple, TripleIndex},
    korc::Question,
    observe::Observer,
    scores::answer_set,
};
use sporran_reasoner::question::{
    Answers, Background, Linker, QuestionTraining, Reasoner, ReasonerKind, TextAnswers, check_trained,
};
use sporran_training::{
    Row, Seq2SeqObjective, TrainingOptions, Variables,
    session::{InitialModel, ShapeOptions, TrainableModel, Trained, TrainingSession},
};
use sporran_transformers::{DeviceName, GenerationOptions, Precision};

use super::texts::{AnswerSplitter, outside};
use crate::Result;

/// `kind = "seq2seq"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Seq2SeqQuestions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The folder of the initial T5 or BART. Without it, training starts from a T5 of `shape` with random
    /// weights, and trains its vocabulary.
    pub from: Option<PathBuf>,
    /// `[reasoner.shape]`: the sizes of a T5 with random weights.
    #[serde(default)]
    pub shape: ShapeOptions,
    /// The order of the input: `document-first`, as in the KoRC paper, or `question-first`.
    #[serde(default)]
    pub order: InputOrder,
    /// The largest number of tokens of question and document. Only the document is cut, at its end.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The largest number of tokens of the answers.
    #[serde(default = "answer_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub answer_tokens: usize,
    /// The number of triples to add to the input. They are about entities of the document, and their
    /// relation's names share most words with the question.
    #[serde(default)]
    #[schemars(extend("x-unit" = "triples"))]
    pub retrieved: usize,
    /// The number of beams of the search for answers.
    #[serde(default = "beams")]
    #[schemars(range(min = 1))]
    pub beams: usize,
    /// How the weights are kept when the model answers: `"f32"`, `"int8"` on a CPU, or `"f16"` or `"bf16"` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// Where the model computes: `cpu`, `cuda` or `cuda:N`; GPUs need a program that was built with the feature `cuda`.
    #[serde(default)]
    pub device: DeviceName,
    /// `[reasoner.optimizer]`: steps, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

/// The order of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InputOrder {
    /// The document, the triples, the question.
    #[default]
    DocumentFirst,
    /// The question, the triples, the document.
    QuestionFirst,
}

fn max_tokens() -> usize {
    1024
}

fn beams() -> usize {
    1
}

fn answer_tokens() -> usize {
    48
}

impl ReasonerKind for Seq2SeqQuestions {
    fn model(&self) -> &Path {
        &self.model
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = self.optimizer.check() {
            document.report_key(&format!("{key}.optimizer"), error.to_string());
        }
        if let Err(error) = self.device.check(self.precision) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
    }

    fn train(
        &self,
        training: &QuestionTraining<'_>,
        observe: &mut Observer<'_>,
    ) -> sporran_reasoner::Result<Trained> {
        train(self, training, observe).map_err(outside)
    }

    fn open<'a>(&self, background: Background<'a>) -> sporran_reasoner::Result<Box<dyn Reasoner + 'a>> {
        check_trained(&self.model)?;
        Ok(Box::new(Seq2SeqReasoner::load(self, background.kb).map_err(outside)?))
    }
}

/// Makes the inputs of the model.
struct Prompts<'a> {
    kb: &'a KnowledgeBase,
    linker: Linker,
    index: TripleIndex,
    splitter: AnswerSplitter,
    retrieved: usize,
    order: InputOrder,
}

impl<'a> Prompts<'a> {
    fn new(kb: &'a KnowledgeBase, retrieved: usize, order: InputOrder) -> Self {
        let (linker, index, splitter) = (Linker::new(kb), kb.index(&[Part::Train]), AnswerSplitter::new(kb));
        Self { kb, linker, index, splitter, retrieved, order }
    }

    /// The question, the triples and the document.
    fn text(&self, question: &Question) -> String {
        self.with_document(question, question.document())
    }

    fn with_document(&self, question: &Question, document: &str) -> String {
        let triples: Vec<String> =
            self.triples(question).into_iter().map(|triple| self.triple_text(triple)).collect();
        let context = if triples.is_empty() { String::new() } else { format!(" | {}", triples.join("; ")) };
        match self.order {
            InputOrder::DocumentFirst => format!("{document}{context} | {}", question.question),
            InputOrder::QuestionFirst => format!("{}{context} | {document}", question.question),
        }
    }

    /// The text, with a document that loses words at its end until the text has at most `max_tokens` tokens. Where the
    /// document is last and has no kept end, the tokenizer cuts it.
    fn fitted(&self, question: &Question, tokenizer: &Tokenizer, max_tokens: usize) -> Result<String> {
        let parts = question.document_parts();
        if self.order == InputOrder::QuestionFirst && parts.1.is_empty() {
            return Ok(self.text(question));
        }
        fit(parts, tokenizer, max_tokens, |document| self.with_document(question, document))
    }

    fn triple_text(&self, triple: Triple) -> String {
        let Triple { subject, relation, object } = triple;
        format!("{} {} {}", self.kb.label(subject), self.kb.relation_label(relation), self.kb.label(object))
    }

    /// The triples about entities of the document, ranked by the number of words that the relation's names
    /// share with the question, then by the order of the entities in the document.
    fn triples(&self, question: &Question) -> Vec<Triple> {
        if self.retrieved == 0 {
            return Vec::new();
        }
        let words = |text: &str| -> FxHashSet<String> {
            text.split(|c: char| !c.is_alphanumeric())
                .filter(|word| word.len() > 3)
                .map(|word| word.to_lowercase().chars().take(5).collect())
                .collect()
        };
        let question_words = words(&question.question);
        let mut seen = FxHashSet::default();
        let mut found: Vec<(usize, Triple)> = Vec::new();
        for name in self.linker.link(question.document()) {
            let subject = EntityId(name.entity);
            for (relation, objects) in self.index.relations_of(subject) {
                let of_label = |label: &String| words(label).intersection(&question_words).count();
                let labels = self.kb.relation_labels(relation);
                let shared = labels.iter().map(of_label).max().unwrap_or_default();
                for &object in objects {
                    let triple = Triple { subject, relation, object };
                    if seen.insert(triple) {
                        found.push((shared, triple));
                    }
                }
            }
        }
        found.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
        found.into_iter().map(|(_, triple)| triple).take(self.retrieved).collect()
    }
}

/// A text around a document, with as many of the document's first words as fit into `max_tokens` tokens. The document's kept
/// end follows them.
pub(super) fn fit(
    (document, end): (&str, &str),
    tokenizer: &Tokenizer,
    max_tokens: usize,
    around: impl Fn(&str) -> String,
) -> Result<String> {
    // The end of each word.
    let ends: Vec<usize> = document
        .char_indices()
        .filter(|(at, c)| {
            !c.is_whitespace()
                && !document[at + c.len_utf8()..].starts_with(|next: char| !next.is_whitespace())
        })
        .map(|(at, c)| at + c.len_utf8())
        .collect();
    let with_words = |document: &str| around(&format!("{document}{end}"));
    let mut text = with_words(document);
    let mut words = ends.len();
    while words > 0 {
        let tokens = tokenizer.encode(&text, None)?.len();
        if tokens <= max_tokens {
            break;
        }
        // Tokens are about proportional to words.
        words = (words * max_tokens / tokens).min(words - 1);
        text = with_words(&document[..words.checked_sub(1).map_or(0, |last| ends[last])]);
    }
    Ok(text)
}

/// The model with the inputs that it reads.
struct Seq2SeqReasoner<'a> {
    generator: TextGenerator,
    prompts: Prompts<'a>,
}

impl<'a> Seq2SeqReasoner<'a> {
    /// Loads the model over a knowledge base.
    fn load(options: &Seq2SeqQuestions, kb: &'a KnowledgeBase) -> Result<Self> {
        let generator = TextGenerator::load(&generator(options))?;
        Ok(Self { generator, prompts: Prompts::new(kb, options.retrieved, options.order) })
    }
}

impl Reasoner for Seq2SeqReasoner<'_> {
    fn answer(&self, questions: &[Question], most: usize) -> sporran_reasoner::Result<Vec<Answers>> {
        let (tokenizer, room) = (self.generator.tokenizer(), self.generator.max_tokens());
        let text = |question: &Question| self.prompts.fitted(question, tokenizer, room);
        let texts: Vec<String> = questions.par_iter().map(text).collect::<Result<_>>().map_err(outside)?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let generated = self.generator.generate(&texts).map_err(|error| outside(error.into()))?;
        let found = |(question, outputs): (&Question, Vec<GeneratedText>)| {
            let (text, score) = outputs.first().map_or(("", 0.0), |output| (&output.text, output.score));
            let answers = self.prompts.splitter.answers(text, most);
            let triples = self.prompts.triples(question);
            Answers::Texts(TextAnswers { answers, score, triples, passages: Vec::new() })
        };
        Ok(questions.iter().zip(generated).map(found).collect())
    }
}

/// The search for answers of at most `answer_tokens` tokens. One beam leaves the choice to the model's folder.
pub(super) fn generation(answer_tokens: usize, beams: usize) -> GenerationOptions {
    GenerationOptions {
        max_new_tokens: Some(answer_tokens),
        num_beams: (beams > 1).then_some(beams),
        ..GenerationOptions::default()
    }
}

/// The generator of a model with these options.
fn generator(options: &Seq2SeqQuestions) -> ModelOptions {
    let generation = generation(options.answer_tokens, options.beams);
    ModelOptions {
        max_tokens: options.max_tokens,
        precision: options.precision,
        device: options.device,
        ..ModelOptions::new(options.model.clone(), generation)
    }
}

/// Trains a model and saves it. The score is the P-F1 on the validation questions.
fn train(
    system: &Seq2SeqQuestions,
    training: &QuestionTraining<'_>,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let &QuestionTraining { kb, questions, valid, .. } = training;
    let prompts = Prompts::new(kb, system.retrieved, system.order);
    let pair = |question: &Question| (prompts.text(question), question.labels().join(", "));
    let pairs: Vec<(String, String)> = questions.par_iter().map(pair).collect();
    let start = match &system.from {
        Some(from) => InitialModel::of_folder(from, training.seed)?,
        None => {
            let texts: Vec<&str> =
                pairs.iter().flat_map(|(source, target)| [source.as_str(), target.as_str()]).collect();
            InitialModel::fresh(&system.shape, &texts, &[], training.seed)?
        }
    };
    let card = |variables: &Variables| training.card(variables);
    let TrainableModel { model, tokenizer, variables, extra_files } =
        start.build(&system.device.open()?, card)?;
    let room = model.max_input_length().unwrap_or(usize::MAX).min(system.max_tokens);
    let text = |question: &Question| prompts.fitted(question, &tokenizer, room);
    let rows: Result<Vec<Row>> = questions
        .par_iter()
        .zip(&pairs)
        .map(|(question, (_, target))| {
            Ok(Row {
                source: tokenizer.encode(&text(question)?, Some(system.max_tokens))?,
                target: tokenizer.encode(target, Some(system.answer_tokens))?,
            })
        })
        .collect();
    let rows = Arc::new(rows?);
    let inputs: Vec<String> = valid.par_iter().map(text).collect::<Result<_>>()?;
    let generator = TextGenerator::new(model.clone(), tokenizer.clone(), generator(system))?;
    let evaluate = || {
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let score = |(texts, question): (Vec<GeneratedText>, &Question)| {
            let text = texts.first().map_or("", |text| &text.text);
            let answers = prompts.splitter.answers(text, training.max_answers);
            answer_set::score(&answers, question.labels(), answer_set::words).p_f1
        };
        let total: f64 = generator.generate(&inputs)?.into_iter().zip(valid).map(score).sum();
        Ok(total / valid.len().max(1) as f64)
    };
    let of_epoch = |_| Ok(rows.clone());
    let objective = Seq2SeqObjective::new(model.as_ref(), &variables, &system.optimizer, &of_epoch);
    let session = TrainingSession {
        variables: &variables,
        options: &system.optimizer,
        folder: training.folder.to_owned(),
        model: &system.model,
        dtype: DType::F16,
        extra_files: &extra_files,
        score: "validation P-F1",
    };
    Ok(session.run(&objective, (!valid.is_empty()).then_some(&evaluate), observe)?)
}

#[cfg(test)]
mod tests {
    use sporran_training::{VocabularyOptions, train_vocabulary};

    use super::*;

    #[test]
    fn triples_of_named_entities_are_in_the_input() {
        let mut kb = KnowledgeBase::default();
        for (id, label) in [("Q1", "Austria"), ("Q2", "German"), ("Q3", "Europe")] {
            let id = kb.add_entity(id).unwrap();
            kb.set_label(id, label);
        }
        for (id, label) in [("P1", "continent"), ("P2", "official language")] {
            let id = kb.add_relation(id).unwrap();
            kb.set_relation_label(id, label);
        }
        kb.add(Part::Train, Triple::new(0, 0, 2)).unwrap();
        kb.add(Part::Train, Triple::new(0, 1, 1)).unwrap();
        let question: Question = serde_json::from_str(
            r#"{"id":1,"question":"Which languages does [x] speak?","context":"[x] is of Austria."}"#,
        )
        .unwrap();
        let of = |retrieved, order| Prompts::new(&kb, retrieved, order).text(&question);
        let text = of(1, InputOrder::QuestionFirst);
        assert_eq!(
            text,
            "Which languages does [x] speak? | Austria official language German | [x] is of Austria."
        );
        assert_eq!(of(0, InputOrder::QuestionFirst), "Which languages does [x] speak? | [x] is of Austria.");
        assert_eq!(of(0, InputOrder::DocumentFirst), "[x] is of Austria. | Which languages does [x] speak?");
    }

    #[test]
    fn only_the_document_is_cut() {
        let words = "one two three four five six seven eight";
        let options = VocabularyOptions { size: 400, min_frequency: 1, marks: Vec::new() };
        let json =
            train_vocabulary([words, "Who? |"].into_iter(), &options).unwrap().to_string(false).unwrap();
        let tokenizer = Tokenizer::from_json(Path::new("t"), json).unwrap();
        let whole = |document: &str| format!("{document} | Who?");
        let tokens = |document: &str| tokenizer.encode(&whole(document), None).unwrap().len();
        let fitted = |room| fit((words, ""), &tokenizer, room, whole).unwrap();
        assert_eq!(fitted(tokens(words)), whole(words));
        // The longest beginning that fits is not needed, but the text fits, and its end stays.
        let room = tokens("one two three");
        let text = fitted(room);
        let kept = text.strip_suffix(" | Who?").unwrap();
        assert!(words.starts_with(kept) && tokens(kept) <= room && !kept.is_empty(), "{text}");
        assert_eq!(fitted(1), " | Who?");
        let kept = fit((words, " three"), &tokenizer, tokens("one two three"), whole).unwrap();
        assert!(kept.starts_with("one") && kept.ends_with(" three | Who?"), "{kept}");
        assert_eq!(fit((words, " three"), &tokenizer, 1, whole).unwrap(), " three | Who?");
    }
}
