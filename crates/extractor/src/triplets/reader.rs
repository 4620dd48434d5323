//! The triplet model with its tokenizer and its folder.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::jsonl;
use sporran_transformers::{
    Batch, Checkpoint, DeviceName, GenerationOptions, Hypothesis, Inputs, Precision, Seq2Seq, each_batch,
    generate_with, length_batches,
};

use super::{
    constraint::{Pieces, Speller, TripletConstraint},
    linear::{Triplet, line, linearise, split},
};
use crate::{
    Document, Sentence, Span,
    error::{Error, Result},
    relations::{Properties, Thresholds},
};

/// The file of a model's folder with its options.
pub const TRIPLETS: &str = "triplets.json";

/// The contents of that file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TripletOptions {
    /// The version of this file; 1.
    pub version: u32,
    /// The possible properties.
    pub properties: Properties,
    /// For each property its relation names; training uses the first.
    pub relations: Vec<Vec<String>>,
    /// The largest number of input tokens of a sentence; the rest is truncated.
    pub max_tokens: usize,
    /// The largest number of output tokens of a sentence, end included; a sequence of that length loses its
    /// last fact.
    pub max_written: usize,
    /// The number of beams; all final sequences contribute to a fact's confidence.
    pub beams: usize,
    /// A property is predicted from this confidence on.
    pub thresholds: Thresholds,
}

impl TripletOptions {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// Reads the file of a folder.
    ///
    /// # Errors
    /// Read errors; [`Error::Model`] for another version or inconsistent parts.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(TRIPLETS);
        let options: Self = jsonl::read_json(&path)?;
        options.check(&path.display().to_string())?;
        Ok(options)
    }

    fn check(&self, what: &str) -> Result<()> {
        let wrong =
            |expected: String, found: String| Err(Error::Model { what: what.to_owned(), expected, found });
        if self.version != Self::VERSION {
            return wrong(format!("version {}", Self::VERSION), self.version.to_string());
        }
        let labels = self.properties.len();
        if self.relations.len() != labels || self.thresholds.all().len() != labels {
            let found = format!("{} and {}", self.relations.len(), self.thresholds.all().len());
            return wrong(format!("{labels} lists of relations and thresholds, one a property"), found);
        }
        let names: Vec<&String> = self.relations.iter().flatten().collect();
        if self.relations.iter().any(Vec::is_empty) || names.iter().any(|name| name.trim().is_empty()) {
            return wrong("a relation for each property".into(), "none".into());
        }
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(*name)) {
            return wrong("relations of one property each".into(), format!("`{}` twice", twice.1));
        }
        for (name, value) in
            [("max-tokens", self.max_tokens), ("max-written", self.max_written), ("beams", self.beams)]
        {
            if value == 0 {
                return wrong(format!("a `{name}` of at least 1"), "0".into());
            }
        }
        Ok(())
    }

    /// The contents of the file.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        // Numbers and strings are always valid JSON.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

/// A generated fact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadTriplet {
    /// The index of the sentence in its document.
    pub sentence: usize,
    /// The fact.
    pub triplet: Triplet,
    /// The probability share of the sequences with this fact, 0 to 1.
    pub confidence: f32,
}

/// An encoder-decoder that generates the facts of sentences.
pub struct TripletReader {
    model: Arc<dyn Seq2Seq>,
    speller: Speller,
    options: TripletOptions,
    relations: Pieces<usize>,
}

/// The largest number of sentences, and of their tokens, in a batch.
const BATCH: (usize, usize) = (16, 1024);
/// The number of sentences prepared at once, so that memory does not grow with a document.
const PORTION: usize = 512;

impl TripletReader {
    /// Loads a folder of a BART or a T5. `options` replace a [`TRIPLETS`] file, which released checkpoints
    /// lack.
    ///
    /// # Errors
    /// If the folder does not contain such a model; as for [`new`](Self::new).
    pub fn load(
        folder: &Path,
        options: Option<TripletOptions>,
        device: DeviceName,
        precision: Precision,
    ) -> Result<Self> {
        let options = match options {
            Some(options) if !folder.join(TRIPLETS).is_file() => options,
            _ => TripletOptions::load(folder)?,
        };
        let checkpoint = Checkpoint::open(folder)?;
        let model = checkpoint.seq2seq(device, precision)?;
        Self::new(model.into(), checkpoint.tokenizer()?, options, folder)
    }

    /// Wraps a loaded model, such as one in training; `folder` names it in errors.
    ///
    /// # Errors
    /// [`Error::Model`] if its tokenizer lacks the [`MARKS`](super::MARKS) or maps two relations to the same tokens, or if the
    /// options need more positions than it has.
    pub fn new(
        model: Arc<dyn Seq2Seq>,
        tokenizer: Tokenizer,
        options: TripletOptions,
        folder: &Path,
    ) -> Result<Self> {
        let what = folder.display().to_string();
        options.check(&what)?;
        if let Some(most) = model.max_input_length().filter(|most| *most <= options.max_written) {
            let (expected, found) =
                (format!("a `max-written` below its {most} positions"), options.max_written.to_string());
            return Err(Error::Model { what, expected, found });
        }
        let speller = Speller::new(tokenizer, &model.special_tokens().eos, folder)?;
        let mut relations = Pieces::new();
        let all = options.relations.iter().enumerate();
        for (label, name) in all.flat_map(|(label, names)| names.iter().map(move |name| (label, name))) {
            let tokens = speller.spell(name)?.filter(|tokens| relations.values(tokens).is_empty());
            let Some(tokens) = tokens else {
                let expected =
                    "relations that its tokenizer distinguishes from each other and from its marks".into();
                return Err(Error::Model { what, expected, found: format!("`{name}`") });
            };
            relations.insert(&tokens, label);
        }
        Ok(Self { model, speller, options, relations })
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &TripletOptions {
        &self.options
    }

    /// The input tokens of a sentence.
    pub(super) fn source(&self, document: &Document, sentence: &Sentence) -> Result<Vec<u32>> {
        let most = self.options.max_tokens.min(self.model.max_input_length().unwrap_or(usize::MAX));
        Ok(self.speller.tokenizer().encode(&line(document, sentence.span), Some(most))?)
    }

    /// The target tokens of facts. The last facts are dropped if they do not fit.
    pub(super) fn target(&self, document: &Document, triplets: &[Triplet]) -> Result<Vec<u32>> {
        let names: Vec<&str> = self.options.relations.iter().map(|names| names[0].as_str()).collect();
        let mut triplets = triplets.to_vec();
        triplets.sort_unstable();
        loop {
            let tokens = self.speller.tokenizer().encode(&linearise(document, &triplets, &names), None)?;
            if tokens.len() < self.options.max_written || triplets.pop().is_none() {
                return Ok(tokens);
            }
        }
    }

    /// The facts of documents in the order of their sentences; result `i` is that of `documents[i]`. No fact
    /// is dropped for its confidence.
    ///
    /// If a head or a tail occurs several times in the sentence, the nearest non-overlapping occurrences
    /// count. If all occurrences overlap, there is no fact. A symmetric property holds in both directions.
    ///
    /// # Errors
    /// Errors of the tokenizer or the model.
    pub fn read(&self, documents: &[&Document]) -> Result<Vec<Vec<ReadTriplet>>> {
        let positions: Vec<(usize, usize)> = documents
            .iter()
            .enumerate()
            .flat_map(|(at, document)| (0..document.sentences.len()).map(move |sentence| (at, sentence)))
            .collect();
        let mut found = vec![Vec::new(); documents.len()];
        for portion in positions.chunks(PORTION) {
            let of = |&(at, sentence): &(usize, usize)| (documents[at], &documents[at].sentences[sentence]);
            let sentences: Vec<(&Document, &Sentence)> = portion.iter().map(of).collect();
            let sources: Vec<Vec<u32>> = sentences
                .par_iter()
                .map(|(document, sentence)| self.source(document, sentence))
                .collect::<Result<_>>()?;
            let lengths: Vec<usize> = sources.iter().map(Vec::len).collect();
            let batches = length_batches(&lengths, BATCH.0, BATCH.1);
            let read = each_batch(self.model.device(), &batches, |batch| {
                let sources: Vec<Vec<u32>> = batch.iter().map(|&at| sources[at].clone()).collect();
                let sentences: Vec<(&Document, &Sentence)> = batch.iter().map(|&at| sentences[at]).collect();
                self.batch(&sources, &sentences)
            })?;
            let mut own: Vec<Vec<(Triplet, f32)>> = vec![Vec::new(); portion.len()];
            for (at, read) in batches.iter().flatten().zip(read.into_iter().flatten()) {
                own[*at] = read;
            }
            for (&(at, sentence), own) in portion.iter().zip(own) {
                let each = own.into_iter();
                found[at].extend(each.map(|(triplet, confidence)| ReadTriplet {
                    sentence,
                    triplet,
                    confidence,
                }));
            }
        }
        Ok(found)
    }

    fn batch(
        &self,
        sources: &[Vec<u32>],
        sentences: &[(&Document, &Sentence)],
    ) -> Result<Vec<Vec<(Triplet, f32)>>> {
        let special = self.model.special_tokens();
        let spans: Vec<Pieces<Span>> = sentences
            .iter()
            .map(|(document, sentence)| self.speller.spans(document, sentence))
            .collect::<Result<_>>()?;
        let constraint = TripletConstraint {
            speller: &self.speller,
            end: special.eos.first().copied().unwrap_or(special.pad),
            spans: &spans,
            relations: &self.relations,
        };
        let inputs = Inputs { sources: Some(sources), constraint: Some(&constraint) };
        let memory = self.model.encode(&Batch::new(sources, special.pad, self.model.device())?)?;
        let found = generate_with(self.model.as_ref(), &memory, &self.generation(), &inputs)?;
        Ok(found.iter().zip(&spans).map(|(hypotheses, spans)| self.facts(hypotheses, spans)).collect())
    }

    /// A folder's settings for lengths and repeated n-grams are for prose, but facts of one property repeat
    /// its name. Sequences are scored by log-probability without length normalisation.
    fn generation(&self) -> GenerationOptions {
        GenerationOptions {
            max_new_tokens: Some(self.options.max_written),
            min_new_tokens: Some(0),
            num_beams: Some(self.options.beams),
            num_return_sequences: Some(self.options.beams),
            length_penalty: Some(0.0),
            no_repeat_ngram_size: Some(0),
            encoder_no_repeat_ngram_size: Some(0),
            do_sample: Some(false),
            ..GenerationOptions::default()
        }
    }

    /// The facts of a sentence's sequences, in text order.
    ///
    /// A fact's confidence is the probability share of the sequences that contain it, which estimates its
    /// marginal probability. The score of the best sequence would be the same for all facts. If annotations
    /// name one fact of several, all of them are found. With one beam it is 1.
    pub(super) fn facts(&self, hypotheses: &[Hypothesis], spans: &Pieces<Span>) -> Vec<(Triplet, f32)> {
        let best = hypotheses.iter().map(|hypothesis| hypothesis.score).fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = hypotheses.iter().map(|hypothesis| (hypothesis.score - best).exp()).collect();
        let all: f32 = weights.iter().sum();
        let mut found: BTreeMap<Triplet, f32> = BTreeMap::new();
        for (hypothesis, weight) in hypotheses.iter().zip(weights) {
            for triplet in self.triplets(&hypothesis.tokens, spans) {
                *found.entry(triplet).or_default() += weight / all;
            }
        }
        // Rounding may exceed 1. An impossible sequence has no share.
        let share = |(triplet, share): (Triplet, f32)| (triplet, share.min(1.0));
        found.into_iter().filter(|(_, share)| *share > 0.0).map(share).collect()
    }

    /// The facts of one sequence, each once.
    fn triplets(&self, tokens: &[u32], spans: &Pieces<Span>) -> Vec<Triplet> {
        // The last possible token may be a forced end.
        let tokens = &tokens[..tokens.len().min(self.options.max_written - 1)];
        let mut own = Vec::new();
        for parts in split(tokens, self.speller.marks(), &self.model.special_tokens().eos) {
            let [head, tail, relation] =
                [parts.head, parts.tail, parts.relation].map(|part| self.speller.without_gap(part));
            let label = self.relations.values(relation).first();
            let (Some(&label), Some((head, tail))) = (label, nearest(spans.values(head), spans.values(tail)))
            else {
                continue;
            };
            own.push(Triplet { head, tail, label });
            if self.options.properties.all()[label].symmetric {
                own.push(Triplet { head: tail, tail: head, label });
            }
        }
        own.sort_unstable();
        own.dedup();
        own
    }
}

/// The nearest head and tail that do not overlap; the first of several.
fn nearest(heads: &[Span], tails: &[Span]) -> Option<(Span, Span)> {
    let pairs = heads.iter().flat_map(|head| tails.iter().map(move |tail| (*head, *tail)));
    let distance = |(a, b): &(Span, Span)| a.start.max(b.start) - a.end.min(b.end);
    pairs.filter(|(head, tail)| !head.overlaps(*tail)).min_by_key(distance)
}
