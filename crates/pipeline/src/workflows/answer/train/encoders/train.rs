//! The training of an encoder and the export of its folder.

use candle_core::DType;
use rustc_hash::FxHashMap;
use sporran_kilt::{StagedFolder, observe::Observer};
use sporran_retriever::dense::Similarity;
use sporran_training::{
    Contrast, ContrastOptions, ContrastPassage, ContrastiveObjective, EvaluationError, Objective,
    RankingObjective, RankingQuery, TunedEncoder,
    session::{Evaluate, Trained, TrainingSession, encoder_files},
};
use sporran_transformers::{BertTask, Checkpoint, EncoderInput, EncoderRow, Text};

use super::{
    EncoderKind, EncoderTraining, Prompts, SentenceLayout,
    contrasts::{Texts, Titled, of_files, of_tasks},
    layout::vectors_of,
};
use crate::{
    Error, Result,
    run_dir::training::TrainingFolder,
    workflows::answer::{options::Options, train::remembered::assemble_remembering},
};

/// Trains the encoder of `[encoder-training]`. A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without training data or without a retriever; errors of files, indexes, model or training.
pub(crate) fn train_encoder(
    options: &Options,
    training: &EncoderTraining,
    underway: &TrainingFolder,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let fault = |key: &str, message: &str| {
        let diagnostic = sporran_config::Diagnostic {
            origin: "config".into(),
            line: 0,
            key: key.into(),
            message: message.into(),
        };
        Error::Config(vec![diagnostic])
    };
    let assembly = assemble_remembering(options, underway, observe)?;
    let (Some(retriever), Some(store)) = (&assembly.retriever, &assembly.store) else {
        return Err(fault("retriever", "is missing; it mines hard negatives"));
    };
    let search = (&**retriever, &**store);
    let mut examples = of_files(training)?;
    if let Some(tasks) = &training.examples {
        let table = (tasks, "encoder-training.examples");
        examples.extend(of_tasks(options, training, table, usize::MAX, search, observe)?);
    }
    if examples.is_empty() {
        return Err(fault("encoder-training", "expected `data`, `dialogues` or `examples` as training data"));
    }
    let table = (&options.general.tasks, "tasks");
    let validation = of_tasks(options, training, table, training.validation_records, search, observe)?;

    let checkpoint = Checkpoint::open(&training.from)?;
    let (task, labels) = match training.kind {
        // An encoder without a head has no labels, but its config requires some.
        EncoderKind::BiEncoder => (BertTask::States, 2),
        EncoderKind::CrossEncoder => (BertTask::SequenceClassification, 1),
    };
    let device = training.device.open()?;
    let seed = options.general.seed;
    let encoder = TunedEncoder::open(&checkpoint, task, labels, seed, &device)?;
    let length = encoder.config().max_input_length();
    let input = EncoderInput::open(&checkpoint, length, training.max_tokens, training.truncation)?;
    let extra_files = extra_files(&checkpoint, &encoder, &input)?;
    let layout = match training.kind {
        EncoderKind::CrossEncoder => None,
        EncoderKind::BiEncoder => {
            let (pooling, similarity) = match (training.pooling, training.similarity) {
                (Some(pooling), Some(similarity)) => (pooling, similarity),
                (pooling, similarity) => {
                    let default = vectors_of(&training.from)?;
                    (pooling.unwrap_or(default.0), similarity.unwrap_or(default.1))
                }
            };
            let (width, prompts) = (encoder.config().hidden_size, Prompts::of(&training.from)?);
            Some(SentenceLayout { pooling, similarity, width, prompts })
        }
    };
    let run =
        Run { options, training, encoder: &encoder, extra_files: &extra_files, layout: layout.as_ref() };
    match &layout {
        Some(SentenceLayout { pooling, similarity, prompts, .. }) => {
            let contrast = ContrastOptions {
                pooling: *pooling,
                cosine: *similarity == Similarity::Cosine,
                scale: training.scale.unwrap_or(match similarity {
                    Similarity::Cosine => 20.0,
                    _ => 1.0,
                }),
                negatives: training.negatives,
            };
            let contrasts = contrasts(&input, prompts, examples)?;
            let objective = ContrastiveObjective::new(&encoder, contrasts, contrast, &training.optimizer)?;
            let lists = lists(&validation, |query, passages| {
                let mut rows = vec![one(&input, &prompts.before_query(query))?];
                for passage in passages {
                    rows.push(one(&input, &prompts.before_passage(&joined(passage)))?);
                }
                Ok(rows)
            })?;
            let evaluate = || {
                mean_reciprocal_rank(&lists, |rows| {
                    let vectors = encoder.vectors(rows, &contrast, training.optimizer.tokens_per_batch)?;
                    let near = |vector: &Vec<f32>| vectors[0].iter().zip(vector).map(|(a, b)| a * b).sum();
                    Ok(vectors[1..].iter().map(near).collect())
                })
            };
            run.execute(&objective, (!lists.is_empty()).then_some(&evaluate), observe)
        }
        None => {
            let queries = queries(&input, examples)?;
            let shown = Some(training.negatives + 1).filter(|&shown| shown > 1);
            let objective =
                RankingObjective::new(&encoder, queries, training.loss, shown, &training.optimizer)?;
            let lists = lists(&validation, |query, passages| pairs(&input, query, passages))?;
            let evaluate = || {
                mean_reciprocal_rank(&lists, |rows| encoder.scores(rows, training.optimizer.tokens_per_batch))
            };
            run.execute(&objective, (!lists.is_empty()).then_some(&evaluate), observe)
        }
    }
}

/// The parts of a training that both kinds share.
struct Run<'a> {
    options: &'a Options,
    training: &'a EncoderTraining,
    encoder: &'a TunedEncoder,
    extra_files: &'a [(String, Vec<u8>)],
    /// The layout of a bi-encoder.
    layout: Option<&'a SentenceLayout>,
}

impl Run<'_> {
    fn execute(
        &self,
        objective: &impl Objective,
        evaluate: Option<&dyn Fn() -> sporran_checkpoint::Result<f64>>,
        observe: &mut Observer<'_>,
    ) -> Result<Trained> {
        let Self { options, training, encoder, extra_files, layout } = self;
        let staged = StagedFolder::create(&training.model)?;
        let model = staged.path();
        let session = TrainingSession {
            variables: encoder.variables(),
            options: &training.optimizer,
            folder: options.general.output.join(&options.general.name).join("training"),
            model: &model,
            dtype: DType::F32,
            extra_files,
            score: "MRR",
        };
        let evaluate = evaluate.map(|evaluate| move || evaluate().map_err(EvaluationError::from));
        let trained =
            session.run(objective, evaluate.as_ref().map(|evaluate| evaluate as Evaluate<'_>), observe)?;
        if let Some(layout) = layout {
            layout.write(&model)?;
        }
        staged.commit()?;
        Ok(Trained { model: training.model.clone(), ..trained })
    }
}

/// The text of a passage: its title and its text.
fn joined((title, text): &Titled) -> String {
    if title.is_empty() { text.clone() } else { format!("{title} {text}") }
}

fn one(input: &EncoderInput, text: &str) -> sporran_checkpoint::Result<EncoderRow> {
    // One text has one row.
    Ok(input.rows(&[Text::One(text)])?.swap_remove(0))
}

fn pairs(
    input: &EncoderInput,
    query: &str,
    passages: &[Titled],
) -> sporran_checkpoint::Result<Vec<EncoderRow>> {
    let texts: Vec<String> = passages.iter().map(joined).collect();
    let pairs: Vec<Text<'_>> = texts.iter().map(|text| Text::Pair(query, text)).collect();
    input.rows(&pairs)
}

fn contrasts(input: &EncoderInput, prompts: &Prompts, examples: Vec<Texts>) -> Result<Vec<Contrast>> {
    let mut keys: FxHashMap<String, u64> = FxHashMap::default();
    let mut passage = |passage: &Titled| -> Result<ContrastPassage> {
        let text = joined(passage);
        let row = one(input, &prompts.before_passage(&text))?;
        let next = keys.len() as u64;
        Ok(ContrastPassage { row, key: *keys.entry(text).or_insert(next) })
    };
    let mut contrasts = Vec::new();
    for texts in examples {
        let negatives: Vec<ContrastPassage> =
            texts.negatives.iter().map(&mut passage).collect::<Result<_>>()?;
        // Each positive passage makes one example.
        for positive in &texts.positives {
            let positive = passage(positive)?;
            let negatives = negatives.iter().filter(|other| other.key != positive.key).cloned().collect();
            let query = one(input, &prompts.before_query(&texts.query))?;
            contrasts.push(Contrast { query, positive, negatives });
        }
    }
    Ok(contrasts)
}

fn queries(input: &EncoderInput, examples: Vec<Texts>) -> Result<Vec<RankingQuery>> {
    let query = |texts: Texts| {
        let passages: Vec<Titled> = texts.positives.iter().chain(&texts.negatives).cloned().collect();
        let rows = pairs(input, &texts.query, &passages)?;
        let targets = (0..rows.len()).map(|at| f32::from(u8::from(at < texts.positives.len()))).collect();
        Ok(RankingQuery { query: None, rows, targets, offsets: Vec::new() })
    };
    examples.into_iter().map(query).collect()
}

/// A query and its passages as token rows.
struct List {
    rows: Vec<EncoderRow>,
    /// The number of positive passages; they are the first.
    positives: usize,
}

fn lists(
    validation: &[Texts],
    rows: impl Fn(&str, &[Titled]) -> sporran_checkpoint::Result<Vec<EncoderRow>>,
) -> Result<Vec<List>> {
    let list = |texts: &Texts| {
        let passages: Vec<Titled> = texts.positives.iter().chain(&texts.negatives).cloned().collect();
        Ok(List { rows: rows(&texts.query, &passages)?, positives: texts.positives.len() })
    };
    validation.iter().map(list).collect()
}

/// The mean reciprocal rank of the first positive passage. Among equal scores the positive passage ranks last.
fn mean_reciprocal_rank(
    lists: &[List],
    score: impl Fn(&[EncoderRow]) -> sporran_checkpoint::Result<Vec<f32>>,
) -> sporran_checkpoint::Result<f64> {
    let mut sum = 0.0;
    for list in lists {
        let scores = score(&list.rows)?;
        let (positives, negatives) = scores.split_at(list.positives);
        let best = positives.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let before = negatives.iter().filter(|&&other| other >= best).count();
        sum += 1.0 / (before + 1) as f64;
    }
    Ok(sum / lists.len() as f64)
}

/// The other files of the model.
fn extra_files(
    from: &Checkpoint,
    encoder: &TunedEncoder,
    input: &EncoderInput,
) -> Result<Vec<(String, Vec<u8>)>> {
    const INPUT: &str = "sentence_bert_config.json";
    let mut files = encoder_files(from, encoder.config())?;
    files.retain(|(name, _)| name != INPUT);
    let settings =
        serde_json::json!({"max_seq_length": input.max_length(), "do_lower_case": input.lowercases()});
    files.push((INPUT.to_owned(), format!("{settings}\n").into_bytes()));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_counts_and_ties_do_not_help() {
        let row = |id: u32| EncoderRow { ids: vec![id], types: vec![0] };
        let list = |ids: &[u32], positives| List { rows: ids.iter().map(|&id| row(id)).collect(), positives };
        // The score of a row is its token.
        let score = |rows: &[EncoderRow]| Ok(rows.iter().map(|row| row.ids[0] as f32).collect());
        // Rank 1; the better of two positives has rank 2; a tie with a negative has rank 2.
        let lists = [list(&[9, 1, 2], 1), list(&[1, 5, 7, 2], 2), list(&[4, 4], 1)];
        let found = mean_reciprocal_rank(&lists, score).unwrap();
        assert!((found - (1.0 + 0.5 + 0.5) / 3.0).abs() < 1e-12, "{found}");
    }
}
