//! Names and dates by a trained tagger: an encoder or a BiLSTM with a conditional random field.

pub(crate) mod bilstm;
mod encoder;
pub(crate) mod features;
mod kind;
mod registry;
mod saved;
mod train;

use std::{collections::HashMap, ops::Range, path::Path};

use candle_core::{Device, Tensor};
use rayon::prelude::*;
use sporran_transformers::{
    Batch, Checkpoint, Crf, DeviceName, EncoderModel, EncoderRow, Head, Mode, Precision, WordInput, WordRow,
};

pub use bilstm::{BiLstmEmitter, BiLstmOptions};
pub use encoder::EncoderOptions;
pub use features::{WordFeatures, WordRows};
pub use kind::{TaggerKind, TaggerTraining};
pub use registry::TaggerOptions;
pub use saved::SavedTagger;

use crate::{
    Document, EntityType, Error, Mention, MentionFinder, MentionForm, Result,
    dates::dates,
    nominals::nominals,
    pronouns::pronoun,
    tags::{tag_grammar, tag_spans},
};

/// How a tagger computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computing {
    /// The precision of an encoder: `f32` or, on a CPU, `int8`.
    pub precision: Precision,
    /// The device of an encoder.
    pub device: DeviceName,
    /// The largest number of tokens in a batch; a longer sentence is a batch.
    pub batch_tokens: usize,
}

impl Default for Computing {
    fn default() -> Self {
        Self { precision: Precision::F32, device: DeviceName::Cpu, batch_tokens: 2048 }
    }
}

/// The model that scores word labels.
enum Scorer {
    Encoder { model: EncoderModel, input: Box<WordInput> },
    BiLstm(bilstm::BiLstmTagger),
}

/// A trained tagger. As a [`MentionFinder`] it adds rule-based mentions: pronouns, nominals such as `the
/// company`, and dates by pattern.
pub struct Tagger {
    scorer: Scorer,
    crf: Crf,
    batch_tokens: usize,
}

/// A name that a tagger found.
#[derive(Clone, Debug, PartialEq)]
pub struct Tagged {
    /// Its tokens in the document.
    pub tokens: Range<usize>,
    /// Its type.
    pub kind: EntityType,
    /// The smallest probability of its tokens' labels.
    pub confidence: f32,
}

impl Tagger {
    /// Opens a folder that `sporran train` wrote.
    ///
    /// # Errors
    /// Errors of reading `tagger.json`; [`Error::Model`] with its field for missing weights or other shapes.
    pub fn open(folder: &Path, computing: Computing) -> Result<Self> {
        let saved = SavedTagger::read(folder)?;
        let path = folder.join("model.safetensors");
        let tensors: HashMap<String, Tensor> = candle_core::safetensors::load(&path, &Device::Cpu)
            .map_err(|source| Error::Weights { path, source: Box::new(source) })?;
        let unfit = |error| Error::unfit(&folder.join(saved::FILE), bilstm::field_of, error);
        let crf = Crf::open(tag_grammar(), "crf", &tensors).map_err(unfit)?;
        let scorer = match saved {
            SavedTagger::EncoderCrf { max_tokens, marks_case, .. } => {
                let checkpoint = Checkpoint::open(folder)?;
                let model = checkpoint.encoder_on(computing.device, computing.precision)?;
                if !matches!(model.head, Head::Token(_)) {
                    return Err(Error::Head { folder: folder.into(), found: model.head.name() });
                }
                let input = WordInput::new(checkpoint.tokenizer()?, max_tokens, marks_case);
                let input = Box::new(input.map_err(unfit)?);
                Scorer::Encoder { model, input }
            }
            SavedTagger::BilstmCrf { labels, features, lstm } => {
                let opened = bilstm::BiLstmTagger::open(features, lstm, labels.len(), &tensors);
                Scorer::BiLstm(opened.map_err(unfit)?)
            }
        };
        Ok(Self { scorer, crf, batch_tokens: computing.batch_tokens.max(1) })
    }

    /// The names and dates of each document, in order, without overlaps.
    ///
    /// # Errors
    /// Errors of the model.
    pub fn tag(&self, documents: &[Document]) -> Result<Vec<Vec<Tagged>>> {
        // Sentences of similar length share a batch, across documents.
        let mut order: Vec<(usize, usize)> = documents
            .iter()
            .enumerate()
            .flat_map(|(at, document)| (0..document.sentences.len()).map(move |sentence| (at, sentence)))
            .collect();
        let length = |(at, sentence): &(usize, usize)| documents[*at].sentences[*sentence].tokens.len();
        order.sort_by_key(|place| (length(place), *place));
        let mut batches: Vec<&[(usize, usize)]> = Vec::new();
        let (mut start, mut tokens) = (0, 0);
        for (at, place) in order.iter().enumerate() {
            let more = length(place);
            if at > start && tokens + more > self.batch_tokens {
                batches.push(&order[start..at]);
                (start, tokens) = (at, 0);
            }
            tokens += more;
        }
        batches.push(&order[start..]);
        let tagged: Vec<Vec<Vec<Tagged>>> = batches
            .par_iter()
            .map(|places| {
                let words = |(at, sentence): &(usize, usize)| -> Vec<&str> {
                    let document = &documents[*at];
                    document.sentences[*sentence].tokens.clone().map(|token| document.word(token)).collect()
                };
                let sentences: Vec<Vec<&str>> = places.iter().map(words).collect();
                let first =
                    |(at, sentence): &(usize, usize)| documents[*at].sentences[*sentence].tokens.start;
                let firsts: Vec<usize> = places.iter().map(first).collect();
                self.batch(&sentences, &firsts)
            })
            .collect::<Result<_>>()?;
        let mut found: Vec<Vec<Tagged>> = vec![Vec::new(); documents.len()];
        for (places, tagged) in batches.iter().zip(tagged) {
            for ((at, _), tagged) in places.iter().zip(tagged) {
                found[*at].extend(tagged);
            }
        }
        found.iter_mut().for_each(|tagged| tagged.sort_by_key(|name| name.tokens.start));
        Ok(found)
    }

    /// The names of some sentences. `firsts` are the document indices of their first tokens.
    fn batch(&self, sentences: &[Vec<&str>], firsts: &[usize]) -> Result<Vec<Vec<Tagged>>> {
        let scores = match &self.scorer {
            Scorer::BiLstm(tagger) => tagger.scores(sentences)?,
            Scorer::Encoder { model, input } => encoder_scores(model, input, sentences)?,
        };
        let labels = self.crf.grammar().labels();
        let mut start = 0;
        let mut found = Vec::with_capacity(sentences.len());
        for (words, first) in sentences.iter().zip(firsts) {
            let scores = &scores[start * labels..(start + words.len()) * labels];
            start += words.len();
            let path = self.crf.best_path(scores);
            let spans = tag_spans(&path);
            if spans.is_empty() {
                found.push(Vec::new());
                continue;
            }
            let marginals = self.crf.marginals(scores);
            let of = |(tokens, kind): (Range<usize>, EntityType)| {
                let sure = tokens.clone().map(|at| marginals[at * labels + path[at]]).fold(1.0, f32::min);
                Tagged { tokens: first + tokens.start..first + tokens.end, kind, confidence: sure }
            };
            found.push(spans.into_iter().map(of).collect());
        }
        Ok(found)
    }
}

/// The word scores of an encoder. Sentences longer than a window are read in several.
fn encoder_scores(model: &EncoderModel, input: &WordInput, sentences: &[Vec<&str>]) -> Result<Vec<f32>> {
    let Head::Token(head) = &model.head else { return Ok(Vec::new()) };
    let windows: Vec<WordRow> =
        sentences.iter().map(|words| input.rows(words)).collect::<Result<Vec<_>, _>>()?.concat();
    if windows.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<&EncoderRow> = windows.iter().map(|window| &window.row).collect();
    let batch = Batch::for_encoder(&rows, &*model.body)?;
    let states = model.body.states(&batch)?;
    let (count, length, width) = states.dims3().map_err(sporran_checkpoint::Error::from)?;
    let places: Vec<u32> = windows
        .iter()
        .enumerate()
        .flat_map(|(row, window)| window.firsts.iter().map(move |first| (row * length + first) as u32))
        .collect();
    let pick = || -> sporran_checkpoint::Result<Vec<f32>> {
        let places = Tensor::new(places, states.device())?;
        let states = states.reshape((count * length, width))?.index_select(&places, 0)?;
        let scores = head.forward(&states.unsqueeze(0)?, &mut Mode::Inference)?;
        Ok(scores.to_dtype(candle_core::DType::F32)?.flatten_all()?.to_vec1()?)
    };
    Ok(pick()?)
}

/// The confidence of a date by pattern.
const DATE: f32 = 0.9;
/// The confidence of a pronoun.
const PRONOUN: f32 = 1.0;
/// The confidence of a nominal.
const NOMINAL: f32 = 0.5;

impl MentionFinder for Tagger {
    fn mentions(&self, documents: &[Document]) -> Result<Vec<Vec<Mention>>> {
        let tagged = self.tag(documents)?;
        Ok(documents.iter().zip(tagged).map(|(document, tagged)| with_rest(document, tagged)).collect())
    }
}

/// Adds a document's pronouns, nominals and missing dates to its names.
#[must_use]
pub fn with_rest(document: &Document, tagged: Vec<Tagged>) -> Vec<Mention> {
    let mut found: Vec<Mention> = Vec::new();
    let mut tagged = tagged.into_iter().peekable();
    for (sentence, place) in document.sentences.iter().enumerate() {
        let make = |tokens: Range<usize>, kind, form, confidence| Mention {
            span: document.span(tokens.clone()),
            tokens,
            sentence,
            kind,
            form,
            confidence,
        };
        let mut own: Vec<Mention> = Vec::new();
        while let Some(name) = tagged.next_if(|name| name.tokens.start < place.tokens.end) {
            own.push(make(name.tokens, name.kind, MentionForm::Name, name.confidence));
        }
        for date in dates(document, place.tokens.clone()) {
            let meets =
                |mention: &Mention| mention.tokens.start < date.end && date.start < mention.tokens.end;
            // The pattern decides the end of a date. Another name that contains it, such as an event's,
            // stays.
            let in_way = own.iter().any(|other| {
                meets(other) && (other.kind != EntityType::Date || !contains(&date, &other.tokens))
            });
            if !in_way {
                own.retain(|other| !meets(other));
                own.push(make(date, EntityType::Date, MentionForm::Name, DATE));
            }
        }
        own.sort_by_key(|mention| mention.tokens.start);
        let free = |own: &[Mention], tokens: &Range<usize>| {
            !own.iter().any(|other| other.tokens.start < tokens.end && tokens.start < other.tokens.end)
        };
        let mut rest: Vec<Mention> = Vec::new();
        for at in place.tokens.clone() {
            let Some(known) = pronoun(document.word(at)) else { continue };
            // After a name, `that` refers to it; elsewhere it usually does not refer to an entity.
            let is_other = document.word(at).eq_ignore_ascii_case("that");
            let is_behind = own.iter().any(|other| other.tokens.end == at && other.kind != EntityType::Date);
            if (!is_other || is_behind) && free(&own, &(at..at + 1)) {
                rest.push(make(at..at + 1, known.kind, MentionForm::Pronoun, PRONOUN));
            }
        }
        for (tokens, kind) in nominals(document, place.tokens.clone()) {
            if free(&own, &tokens) {
                // `his company` contains a pronoun, which precedes the nominal.
                let start = tokens.start + usize::from(pronoun(document.word(tokens.start)).is_some());
                rest.push(make(start..tokens.end, kind, MentionForm::Nominal, NOMINAL));
            }
        }
        own.extend(rest);
        own.sort_by_key(|mention| mention.tokens.start);
        found.extend(own);
    }
    found
}

fn contains(whole: &Range<usize>, part: &Range<usize>) -> bool {
    whole.start <= part.start && part.end <= whole.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_merged_with_dates_pronouns_and_descriptions() {
        let document =
            Document::new("d", "Acme Inc. said it left on May 4, 1970. The company, which Ann ran, thrives.");
        let name = |tokens: Range<usize>, kind| Tagged { tokens, kind, confidence: 0.7 };
        let at = |word: &str| (0..document.tokens.len()).find(|at| document.word(*at) == word).unwrap();
        let tagged = vec![
            name(0..2, EntityType::Organisation),
            // Only a part of the date.
            name(at("May")..at("May") + 2, EntityType::Date),
            name(at("Ann")..at("Ann") + 1, EntityType::Person),
        ];
        let found = with_rest(&document, tagged);
        let mentions: Vec<(&str, MentionForm, usize)> = found
            .iter()
            .map(|mention| (document.slice(mention.span).unwrap(), mention.form, mention.sentence))
            .collect();
        assert_eq!(
            mentions,
            [
                ("Acme Inc.", MentionForm::Name, 0),
                ("it", MentionForm::Pronoun, 0),
                ("May 4, 1970", MentionForm::Name, 0),
                ("The company", MentionForm::Nominal, 1),
                ("which", MentionForm::Pronoun, 1),
                ("Ann", MentionForm::Name, 1)
            ]
        );
    }
}
