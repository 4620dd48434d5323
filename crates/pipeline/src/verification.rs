//! Training a verifier: a classifier that says of a claim and a piece of what is retrieved for it whether the piece
//! supports it, refutes it or says nothing.

use std::sync::Arc;

use candle_core::DType;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_generator::{
    Candidate, Generator, Labeller, Request, UnitKind, Verifier, VerifierOptions, units,
};
use sporran_kilt::{Passage, PassageId, PassageStore, Provenance};
use sporran_transformers::{
    BertTask, Checkpoint, EncoderInput, EncoderRow, Text, Truncation,
    training::{ClassificationObjective, EvaluationError, LabelledRow, TunedEncoder},
};

use crate::{
    Error, Options, Result,
    assemble::assemble_retrieval,
    learn::{Learning, encoder_files},
    observe::Observer,
    options::TrainOptions,
    train::{Reading, Trained, readings},
};

/// The labels in the order of the model's outputs.
const LABELS: [&str; 3] = ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"];
const NOT_ENOUGH_INFO: u32 = 2;

/// A claim with what is read beside it.
struct Claim {
    text: String,
    label: u32,
    /// Pieces that hold its evidence.
    evidence: Vec<String>,
    /// Other pieces, in the retriever's order.
    others: Vec<String>,
}

/// Trains the classifier of a `verifier` on the claims of `[train.examples]` and judges it by its verdicts on `[tasks]`.
///
/// # Errors
/// [`Error::Config`] without `train.from`, an encoder to start from; whatever is wrong with files, index or training.
pub(crate) fn train_verifier(
    options: &Options,
    train: &TrainOptions,
    verifier: &VerifierOptions,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let fault = |key: &str, message: &str| {
        let diagnostic =
            crate::Diagnostic { origin: "config".into(), line: 0, key: key.into(), message: message.into() };
        Error::Config(vec![diagnostic])
    };
    let from = train
        .from
        .as_ref()
        .ok_or_else(|| fault("train.from", "is missing; a verifier starts from an encoder"))?;
    let assembly = assemble_retrieval(options, observe)?;
    let Some(store) = &assembly.store else {
        return Err(fault("source", "is missing; claims are checked against its pages"));
    };
    let wanted = verifier.passages;
    let examples = (&train.examples, "train.examples", None);
    let judged = (&options.general.tasks, "tasks", Some(train.judged));
    let [examples, judged] = [examples, judged].map(|(files, table, limit)| {
        readings(options, files, table, limit, wanted, false, &assembly, observe)
    });
    let (examples, judged) = (examples?, judged?);
    let claims: Vec<Claim> = examples
        .iter()
        .map(|reading| claim(reading, verifier, store))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    if claims.is_empty() {
        return Err(fault("train.examples", "expected claims with evidence in the source, found none"));
    }

    let checkpoint = Checkpoint::open(from)?;
    let device = train.device.open()?;
    let task = BertTask::SequenceClassification;
    let encoder = TunedEncoder::open(&checkpoint, task, LABELS.len(), options.general.seed, &device)?;
    let length = encoder.config().max_input_length();
    let input = EncoderInput::open(&checkpoint, length, verifier.max_tokens, Truncation::LongestFirst)?;
    let mut config = encoder.config().clone();
    config.labels = LABELS.map(str::to_owned).to_vec();
    let companions = encoder_files(&checkpoint, &config)?;

    let rows = claims.iter().map(|claim| Rows::of(claim, &input)).collect::<Result<Vec<_>>>()?;
    let of_epoch = |epoch: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(options.general.seed ^ 0x7e21);
        rng.set_stream(epoch);
        rows.iter().flat_map(|rows| rows.shown(train.negatives, &mut rng)).collect()
    };
    let objective = ClassificationObjective::new(&encoder, &of_epoch, &train.optimizer)?;
    let labels = config.labels;
    let tokens = train.optimizer.tokens_per_batch;
    let store = Arc::clone(store);
    let judge = || -> Result<f64, EvaluationError> {
        let model = Box::new(Tuned { encoder: &encoder, input: &input, labels: &labels, tokens });
        accuracy(verifier, model, &store, &judged).map_err(EvaluationError::from)
    };
    let learning = Learning {
        variables: encoder.variables(),
        options: &train.optimizer,
        folder: options.general.output.join(&options.general.name).join("training"),
        model: &train.model,
        dtype: DType::F32,
        companions: &companions,
        score: "accuracy",
    };
    learning.run(&objective, (!judged.is_empty()).then_some(&judge), observe)
}

/// What a claim is learned from; `None` where the answer is no verdict or none of its evidence is in the source.
fn claim(reading: &Reading, options: &VerifierOptions, store: &PassageStore) -> Result<Option<Claim>> {
    let answers = reading.example.answers();
    let Some(label) = answers.first().and_then(|answer| LABELS[..2].iter().position(|label| label == answer))
    else {
        return Ok(None);
    };
    let gold: Vec<&Provenance> = reading.example.gold.iter().flat_map(|output| output.evidence()).collect();
    let mut passages: Vec<Passage> = reading.passages.iter().map(|(passage, _)| passage.clone()).collect();
    for id in gold.iter().filter_map(|item| item.wikipedia_id.as_ref()) {
        if let Some(page) = store.page_by_id(&id.text()) {
            for passage in store.passages_of(page).map(|id| store.passage(PassageId(id))) {
                if passages.iter().all(|known| known.id != passage.id) {
                    passages.push(passage);
                }
            }
        }
    }
    let candidates: Vec<Candidate<'_>> =
        passages.iter().map(|passage| Candidate { passage, score: 0.0 }).collect();
    let request = Request { query: &reading.example.query, passages: &candidates };
    let mut claim = Claim {
        text: reading.example.query.text.clone(),
        label: label as u32,
        evidence: Vec::new(),
        others: Vec::new(),
    };
    let titled = units(&request, options.evidence, options.titles, Some(store))?;
    // Spans are looked for in the page's own words.
    let plain = units(&request, options.evidence, false, Some(store))?;
    for (unit, plain) in titled.into_iter().zip(plain) {
        let page = &passages[unit.passage].page_id;
        let of_page =
            |item: &&&Provenance| item.wikipedia_id.as_ref().is_some_and(|id| id.text() == page.as_str());
        let is_gold = gold.iter().filter(of_page).any(|item| {
            span(item, store).is_none_or(|span| {
                let (span, piece) = (span.trim(), plain.text.trim());
                options.evidence == UnitKind::Lead || piece.contains(span) || span.contains(piece)
            })
        });
        if is_gold { claim.evidence.push(unit.text) } else { claim.others.push(unit.text) }
    }
    Ok((!claim.evidence.is_empty()).then_some(claim))
}

/// The text of a span within one paragraph; `None` where the evidence is a page as a whole.
fn span(item: &Provenance, store: &PassageStore) -> Option<String> {
    let page = store.page_by_id(&item.wikipedia_id.as_ref()?.text())?;
    let number = |id: &Option<sporran_kilt::Id>| id.as_ref().and_then(sporran_kilt::Id::number);
    let paragraph = u32::try_from(number(&item.start_paragraph_id)?).ok()?;
    let (start, end) = (number(&item.start_character)?, number(&item.end_character)?);
    let count = usize::try_from(end.checked_sub(start)?).ok()?;
    if paragraph as usize >= store.paragraph_count(page) {
        return None;
    }
    let text = store.paragraph(page, paragraph);
    Some(text.chars().skip(usize::try_from(start).ok()?).take(count).collect())
}

/// A claim's pairs as token rows.
struct Rows {
    label: u32,
    evidence: Vec<EncoderRow>,
    others: Vec<EncoderRow>,
}

impl Rows {
    fn of(claim: &Claim, input: &EncoderInput) -> Result<Self> {
        let rows = |texts: &[String]| {
            let pairs: Vec<Text<'_>> = texts.iter().map(|text| Text::Pair(&claim.text, text)).collect();
            input.rows(&pairs)
        };
        Ok(Self { label: claim.label, evidence: rows(&claim.evidence)?, others: rows(&claim.others)? })
    }

    /// All evidence, and some other pieces.
    fn shown(&self, negatives: usize, rng: &mut ChaCha8Rng) -> Vec<LabelledRow> {
        let evidence = self.evidence.iter().map(|row| LabelledRow { row: row.clone(), label: self.label });
        let mut order: Vec<usize> = (0..self.others.len()).collect();
        order.shuffle(rng);
        let others = order.into_iter().take(negatives);
        let others = others.map(|at| LabelledRow { row: self.others[at].clone(), label: NOT_ENOUGH_INFO });
        evidence.chain(others).collect()
    }
}

/// The classifier in training.
struct Tuned<'a> {
    encoder: &'a TunedEncoder,
    input: &'a EncoderInput,
    labels: &'a [String],
    tokens: usize,
}

impl Labeller for Tuned<'_> {
    fn labels(&self) -> &[String] {
        self.labels
    }

    fn logits(&self, pairs: &[(&str, &str)]) -> sporran_generator::Result<Vec<Vec<f32>>> {
        let texts: Vec<Text<'_>> = pairs.iter().map(|(claim, piece)| Text::Pair(claim, piece)).collect();
        Ok(self.encoder.logits(&self.input.rows(&texts)?, self.tokens)?)
    }
}

/// The share of right verdicts.
fn accuracy(
    options: &VerifierOptions,
    model: Box<Tuned<'_>>,
    store: &Arc<PassageStore>,
    judged: &[Reading],
) -> Result<f64> {
    let options = VerifierOptions { selection: None, ..options.clone() };
    let verifier = Verifier::new(&options, model, None, Some(Arc::clone(store)))?;
    let mut right = 0;
    for reading in judged {
        let generation = reading.ask(|request| verifier.generate(std::slice::from_ref(request)))?;
        let verdict = generation.first().map(|generation| generation.text.as_str());
        right += usize::from(verdict.is_some_and(|verdict| reading.example.answers().contains(&verdict)));
    }
    Ok(right as f64 / judged.len() as f64)
}
