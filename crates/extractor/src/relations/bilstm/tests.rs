use candle_core::Var;
use rustc_hash::FxHashSet;
use sporran_training::{Gradients, Objective, TrainingOptions, Variables};

use super::*;
use crate::{
    Chain, EntityType, Link, MentionForm, Parse,
    relations::{
        Annotated, Background, EntityFacts, HeldOut, Property, RelationTraining, linear::tests::documents,
    },
    tagger::WordFeatures,
};

/// Annotated sentences with parses; chains, links and a knowledge base cover some of their mentions.
fn with_background() -> (Vec<Annotated>, Properties) {
    let (mut documents, properties) = documents();
    let mut facts = EntityFacts::default();
    facts.add_type("Q1", "Q5");
    facts.add_type("Q1", "Q6");
    facts.add_type("Q2", "Q5");
    facts.add_fact("Q1", "P26", "Q2");
    for (at, annotated) in documents.iter_mut().enumerate() {
        let chains = [
            Chain { mentions: vec![(0, 0.9)], representative: 0, others: vec![(1, 0.4)] },
            Chain { mentions: vec![(1, 1.0)], representative: 1, others: vec![] },
        ];
        // Every third document has no links.
        let entity = |entity: &str| Some(Link { entity: entity.into(), confidence: 0.7 });
        let links = if at % 3 == 2 { [None, None] } else { [entity("Q1"), entity("Q2")] };
        let background = Background { chains: &chains, links: &links, knowledge: Some(&facts) };
        background.annotate(&mut annotated.candidates);
        // The verb is the root of the four tokens.
        annotated.document.set_parse(Parse::new([(0, 1), (2, 1), (3, 1)], vec![1]));
    }
    (documents, properties)
}

fn shape(pooling: Pooling, dropout: f64) -> BilstmShape {
    BilstmShape {
        words: WordFeatures { buckets: 60, width: 3 },
        hidden: 4,
        layers: 2,
        dropout,
        around: None,
        pooling,
        ..BilstmShape::default()
    }
}

/// A model with all features of the documents.
fn file(shape: &BilstmShape, properties: &Properties, documents: &[Annotated]) -> BilstmFile {
    let kinds = BilstmReader::kinds(shape, properties, documents);
    let known = BilstmReader::known_values(documents);
    BilstmFile { parsed: true, known, ..BilstmFile::new(shape, properties).with_kinds(kinds) }
}

/// All pairs of sentences in one batch.
const ALL: PairBatches = PairBatches { negatives: 1.0, pairs: 0 };

fn inputs(annotated: &Annotated) -> Vec<RelationInput<'_>> {
    let of = |candidates| (&annotated.document, &*annotated.mentions, candidates);
    annotated.candidates.iter().map(of).collect()
}

fn zeros(variables: &Variables) -> Gradients {
    variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect()
}

/// The slope along a gradient's direction is its norm.
fn check_gradients(variables: &Variables, learn: &dyn Fn() -> (f64, Gradients)) {
    let (_, found) = learn();
    for ((name, var), gradient) in variables.all().iter().zip(&found) {
        let norm = gradient.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        assert!(norm > 1e-5, "{name} has no gradient");
        let var: &Var = var;
        let before = var.as_tensor().copy().unwrap();
        let direction = Tensor::from_slice(gradient, var.shape(), &Device::Cpu).unwrap();
        let at = |step: f64| {
            var.set(&(&before + (&direction * (step / norm)).unwrap()).unwrap()).unwrap();
            learn().0
        };
        let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
        var.set(&before).unwrap();
        assert!((slope - norm).abs() < 0.02 * norm + 2e-4, "{name}: {slope} {norm}");
    }
}

/// Checks the gradients of a network on the first examples.
fn check_network(file: &BilstmFile, vectors: Option<&Arc<Vectors>>, examples: Vec<RelationExample>) {
    let variables = Variables::new(3);
    let network = RelationNetwork::new(file, vectors.cloned(), &variables).unwrap();
    let objective = RelationObjective::new(&network, examples, ALL, &TrainingOptions::default());
    let batch = objective.epoch(0).unwrap().remove(0);
    check_gradients(&variables, &|| {
        let mut gradients = zeros(&variables);
        (objective.learn(&batch, 2.0, 7, &mut gradients).unwrap(), gradients)
    });
}

#[test]
fn every_variable_has_the_gradient_that_differences_show() {
    let (documents, properties) = with_background();
    for (pooling, dropout) in [(Pooling::Mean, 0.0), (Pooling::Max, 0.0), (Pooling::Mean, 0.3)] {
        let file = file(&shape(pooling, dropout), &properties, &documents);
        // The last layer's weights include those of features 9 and 10: three of types for each end, and one property.
        assert_eq!(file.known.width(), 5);
        let reader = BilstmReader::new(&file, None);
        check_network(&file, None, reader.examples(&documents[..4], None, Positives::Overlapping).unwrap());
    }
}

/// Vectors of two values for some words.
fn vectors() -> Arc<Vectors> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v.txt");
    std::fs::write(&path, "Ann 0.5 -1\nmarried 1 0.25\n. 0.1 2\n").unwrap();
    Arc::new(Vectors::read(&path, &FxHashSet::default(), 3).unwrap())
}

#[test]
fn pretrained_vectors_are_inputs_and_no_variables() {
    let (documents, properties) = with_background();
    let vectors = vectors();
    let file = BilstmFile { vectors: Some(2), ..file(&shape(Pooling::Mean, 0.0), &properties, &documents) };
    let reader = BilstmReader::new(&file, Some(vectors.clone()));
    let variables = Variables::new(3);
    RelationNetwork::new(&file, Some(vectors.clone()), &variables).unwrap();
    assert!(variables.named("words.weight").is_none());
    check_network(
        &file,
        Some(&vectors),
        reader.examples(&documents[..4], None, Positives::Overlapping).unwrap(),
    );
    // Ann married Bob: the first values of a token are its vector, and an unknown word has zeros.
    let sentences = reader.sentences(&inputs(&documents[0]), None).unwrap();
    let weights =
        Weights::new(Arc::new(file.clone()), Some(vectors), |_, shape| Ok(vec![0.0; shape.iter().product()]));
    let tokens = weights.unwrap().tokens(&[&sentences[0]], None);
    let words: Vec<&[f32]> = tokens.chunks_exact(file.token_width()).map(|row| &row[..2]).collect();
    assert_eq!(words, [&[0.5, -1.0], &[1.0, 0.25], &[0.0, 0.0], &[0.1, 2.0]]);
}

#[test]
fn features_9_and_10_are_joined_to_the_output_of_the_lstm() {
    let (documents, properties) = with_background();
    let file = file(&shape(Pooling::Mean, 0.0), &properties, &documents);
    assert_eq!(
        file.known,
        KnownValues { types: vec!["Q5".into(), "Q6".into()], properties: vec!["P26".into()] }
    );
    let reader = BilstmReader::new(&file, None);
    let sentences = reader.sentences(&inputs(&documents[0]), None).unwrap();
    let known: Vec<&[usize]> = sentences[0].pairs.iter().map(|pair| pair.known.as_slice()).collect();
    // Q1 (Q5, Q6) to Q2 (Q5) with P26, and back without a property. The subject's types are inputs 0 and 1, the object's 2 and 3,
    // the property is 4.
    assert_eq!(known, [&[0, 1, 2, 4][..], &[0, 2, 3]]);
    let weights = Weights::new(Arc::new(file.clone()), None, |_, shape| {
        Ok((0..shape.iter().product::<usize>()).map(|at| at as f32).collect())
    });
    let weights = weights.unwrap();
    let picked = [weights::Picked::all(&sentences[0])];
    let pairs = weights::placed(&picked);
    let pooled: Vec<f32> = (0..16).map(|at| at as f32 / 8.0).collect();
    let joined = weights.joined(&pooled, &pairs);
    assert_eq!(joined[..8], pooled[..8]);
    assert_eq!(joined[8..13], [1.0, 1.0, 1.0, 0.0, 1.0]);
    assert_eq!(joined[13..21], pooled[8..]);
    assert_eq!(joined[21..], [1.0, 0.0, 1.0, 1.0, 0.0]);
    // The second output of the first pair: row 1 of the weights (13 to 25), the second bias (1).
    let expected: f32 = joined[..13].iter().zip(13..).map(|(x, weight)| x * weight as f32).sum();
    assert!((weights.outputs(&joined)[1] - (expected + 1.0)).abs() < 1e-3);
    // A document without links has none of these inputs.
    let without = reader.sentences(&inputs(&documents[2]), None).unwrap();
    assert!(without[0].pairs.iter().all(|pair| pair.known.is_empty()));
}

/// The encoder of a fixture.
fn encoder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/encoders/bert-sequence")
}

#[test]
fn the_mix_of_an_encoder_s_layers_is_an_input_besides_the_words() {
    let (documents, properties) = with_background();
    let encoder = LayerEncoder::open(&encoder(), DeviceName::Cpu, Precision::F32).unwrap();
    let words = encoder.words().clone();
    // A model of first pieces, as earlier ones are, does not say how pieces are joined.
    let without = serde_json::json!({ "layers": words.layers, "width": words.width });
    let message = serde_json::from_value::<EncoderWords>(without).unwrap_err().to_string();
    assert!(message.contains("missing field `pieces`"), "{message}");
    let file = file(&shape(Pooling::Mean, 0.0), &properties, &documents);
    let file = BilstmFile { encoder: Some(words.clone()), ..file };
    let reader = BilstmReader::new(&file, None);
    check_network(
        &file,
        None,
        reader.examples(&documents[..3], Some(&encoder), Positives::Overlapping).unwrap(),
    );
    // The embeddings are no layer of the mix, and the states of the layers follow each other.
    let sentences = reader.sentences(&inputs(&documents[0]), Some(&encoder)).unwrap();
    assert_eq!(sentences[0].layers.len(), 4 * words.layers * words.width);
    let weights = Weights::new(Arc::new(file.clone()), None, |name, shape| {
        Ok(vec![if name == "mix.scale" { 2.0 } else { 0.0 }; shape.iter().product()])
    });
    let tokens = weights.unwrap().tokens(&[&sentences[0]], None);
    let first = file.word_width();
    for at in 0..words.width {
        let states = (0..words.layers).map(|layer| sentences[0].layers[layer * words.width + at]);
        // Equal logits give equal shares, and the scale is 2.
        let expected = 2.0 * states.sum::<f32>() / words.layers as f32;
        assert!((tokens[first + at] - expected).abs() < 1e-5);
    }
}

#[test]
fn a_model_survives_its_folder_and_reads_sentences_by_themselves() {
    let (documents, properties) = with_background();
    let shape = shape(Pooling::Max, 0.0);
    let file = file(&shape, &properties, &documents);
    let variables = Variables::new(5);
    let file = BilstmFile { vectors: Some(2), ..file };
    let network = RelationNetwork::new(&file, Some(vectors()), &variables).unwrap();
    let folder = tempfile::tempdir().unwrap();
    vectors().save(folder.path()).unwrap();
    let tensors: HashMap<String, Tensor> =
        variables.all().into_iter().map(|(name, var)| (name, var.as_tensor().clone())).collect();
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    file.save(folder.path()).unwrap();
    assert_eq!(BilstmFile::load(folder.path()).unwrap(), file);
    let model = super::super::open(folder.path(), DeviceName::Cpu, Precision::F32).unwrap();
    let all: Vec<RelationInput<'_>> = documents.iter().flat_map(inputs).collect();
    let together = model.score(&all).unwrap();
    let reader = BilstmReader::new(&file, Some(vectors()));
    for (input, scores) in all.iter().zip(&together) {
        let sentences = reader.sentences(std::slice::from_ref(input), None).unwrap();
        let logits = network.logits(&[&sentences[0]]).unwrap();
        let alone = reader.scores(*input, &sentences[0], &logits[0]);
        for pair in 0..input.2.pairs.len() {
            assert!((alone.of(pair, 0) - scores.of(pair, 0)).abs() < 1e-6);
            assert!(alone.of(pair, 0) > 0.0);
        }
    }
    let path = folder.path().join(BILSTM);
    let text = std::fs::read_to_string(&path).unwrap();
    let message = |from: &str, to: &str| {
        std::fs::write(&path, text.replace(from, to)).unwrap();
        BilstmRelations::load(folder.path(), DeviceName::Cpu, Precision::F32).err().unwrap().to_string()
    };
    assert!(message("\"version\": 2", "\"version\": 1").contains("expected version 2, found 1"));
    assert!(message("\"vectors\": 2", "\"vectors\": 3").contains("vectors.txt"));
    assert!(message("\"hidden\": 4", "\"hidden\": 5").contains("lstm.weight_ih_l0"));
    assert!(message("\"layers\": 2", "\"layers\": 0").contains("shape.layers"));
}

#[test]
fn types_restrict_the_pairs_that_are_read() {
    let (mut documents, properties) = with_background();
    let (person, place) = (EntityType::Person, EntityType::Location);
    for annotated in &mut documents {
        annotated.mentions.iter_mut().for_each(|mention| mention.kind = person);
    }
    documents[0].mentions[1].kind = place;
    let shape = BilstmShape { pairs: Pairing::ByType, ..shape(Pooling::Max, 0.0) };
    // SPOUSE is between persons.
    assert_eq!(BilstmReader::kinds(&shape, &properties, &documents), [vec![(person, person)]]);
    let all =
        BilstmReader::kinds(&BilstmShape { pairs: Pairing::All, ..shape.clone() }, &properties, &documents);
    assert!(all.is_empty());
    // The types of another property are those of its facts: one of twelve is between a person and a place, too many to be an
    // accident.
    let other = Property { id: "99".into(), ..properties.all()[0].clone() };
    let learned = BilstmReader::kinds(&shape, &Properties::new(vec![other]), &documents);
    assert_eq!(learned, [vec![(person, person), (person, place)]]);
    let only = file(&shape, &properties, &documents).with_kinds(vec![vec![(person, place)]]);
    let reader = BilstmReader::new(&only, None);
    let sentences = reader.sentences(&inputs(&documents[0]), None).unwrap();
    let logits = vec![0.0; sentences[0].pairs.len() * 2];
    let scores = reader.scores(inputs(&documents[0])[0], &sentences[0], &logits);
    // From the person to the place, and not back.
    assert_eq!((scores.of(0, 0), scores.of(1, 0), scores.of_links(0, 0)), (0.5, 0.0, 0.5));
    assert!(reader.sentences(&inputs(&documents[1]), None).unwrap()[0].pairs.is_empty());
    // A pronoun has all types of its gazetteers: it can be a place.
    let mention = &mut documents[1].mentions[1];
    (mention.form, mention.kind) = (MentionForm::Pronoun, EntityType::Organisation);
    let text = documents[1].document.text.replace("Dan", "it");
    documents[1].document = crate::Document::new("d", text);
    documents[1].document.set_parse(Parse::default());
    assert!(reader.asks(inputs(&documents[1])[0], 0, 0));
}

#[test]
fn a_pair_s_links_are_correct_if_they_are_those_of_its_fact() {
    let (mut documents, properties) = with_background();
    let file = file(&shape(Pooling::Max, 0.0), &properties, &documents);
    let reader = BilstmReader::new(&file, None);
    let outputs = |documents: &[Annotated]| -> Vec<Vec<(usize, f32)>> {
        let examples = reader.examples(&documents[..1], None, Positives::Overlapping).unwrap();
        examples[0].pairs.iter().map(|(_, known)| known.clone()).collect()
    };
    // Text and links, for each direction: the fact holds from the first mention to the second.
    assert_eq!(outputs(&documents), [[(0, 1.0), (1, 0.0)], [(0, 0.0), (1, 0.0)]]);
    documents[0].facts[0].links = Some(("Q1".into(), "Q2".into()));
    assert_eq!(outputs(&documents), [[(0, 1.0), (1, 1.0)], [(0, 0.0), (1, 0.0)]]);
    documents[0].facts[0].links = Some(("Q1".into(), "Q3".into()));
    assert_eq!(outputs(&documents), [[(0, 1.0), (1, 0.0)], [(0, 0.0), (1, 0.0)]]);
}

#[test]
fn a_pair_that_only_overlaps_a_fact_is_no_exact_example() {
    let (mut documents, properties) = with_background();
    let file = file(&shape(Pooling::Max, 0.0), &properties, &documents);
    let reader = BilstmReader::new(&file, None);
    let pairs = |documents: &[Annotated], positives| -> Vec<usize> {
        let examples = reader.examples(&documents[..1], None, positives).unwrap();
        examples[0].pairs.iter().map(|(pair, _)| *pair).collect()
    };
    assert_eq!(pairs(&documents, Positives::Exact), [0, 1]);
    documents[0].facts[0].subject.end -= 1;
    assert_eq!(pairs(&documents, Positives::Overlapping), [0, 1]);
    assert_eq!(pairs(&documents, Positives::Exact), [1]);
}

#[test]
fn the_context_of_a_pair_can_be_limited() {
    let (documents, properties) = with_background();
    let read = |around: Option<usize>| {
        let shape = BilstmShape { around, ..shape(Pooling::Max, 0.0) };
        let reader = BilstmReader::new(&file(&shape, &properties, &documents), None);
        reader.sentences(&inputs(&documents[0]), None).unwrap().remove(0)
    };
    let (all, near) = (read(None), read(Some(0)));
    // Ann married Bob, and the full stop.
    assert_eq!((all.pairs[0].tokens.clone(), near.pairs[0].tokens.clone()), (0..4, 0..3));
    let width = all.pairs[0].features.len() / 4;
    assert_eq!(near.pairs[0].features, all.pairs[0].features[..3 * width]);
}

#[test]
fn a_model_with_features_of_parses_needs_a_parse() {
    let (mut documents, properties) = with_background();
    let reader = BilstmReader::new(&file(&shape(Pooling::Max, 0.0), &properties, &documents), None);
    documents[0].document = crate::Document::new("7", documents[0].document.text.clone());
    let message = reader.sentences(&inputs(&documents[0]), None).unwrap_err().to_string();
    assert!(message.contains("document `7`, parses: expected a dependency parse"), "{message}");
}

#[test]
fn each_pass_draws_its_own_negatives_and_has_all_positives() {
    let (documents, properties) = with_background();
    let file = file(&shape(Pooling::Max, 0.0), &properties, &documents);
    let examples = BilstmReader::new(&file, None).examples(&documents, None, Positives::Overlapping).unwrap();
    let network = RelationNetwork::new(&file, None, &Variables::new(3)).unwrap();
    let options = TrainingOptions { tokens_per_batch: 1_000_000, ..TrainingOptions::default() };
    let batches = |batches: PairBatches, number: u64| {
        let objective = RelationObjective::new(&network, examples.clone(), batches, &options);
        let all = objective.epoch(number).unwrap();
        let sizes = all.iter().map(|batch| (objective.weight(batch), objective.tokens(batch)));
        sizes.collect::<Vec<(f64, usize)>>()
    };
    let whole = |negatives: f64, number: u64| batches(PairBatches { negatives, pairs: 0 }, number)[0];
    // Each of 24 sentences has two pairs of four tokens with two known outputs. In 12 of them one pair has the property.
    assert_eq!((whole(1.0, 0), whole(0.0, 0)), ((96.0, 192), (24.0, 48)));
    let halves: Vec<f64> = (0..6).map(|number| whole(0.5, number).0).collect();
    assert!(halves.iter().all(|weight| (24.0..=96.0).contains(weight)));
    assert!(halves.iter().any(|weight| *weight != halves[0]), "{halves:?}");
    assert_eq!(whole(0.5, 3), whole(0.5, 3));
    // Batches of twenty pairs: 20, 20 and the remaining 8.
    let sizes = batches(PairBatches { negatives: 1.0, pairs: 20 }, 0);
    assert_eq!(sizes, [(40.0, 80), (40.0, 80), (16.0, 32)]);
}

#[test]
fn the_loss_is_the_mean_cross_entropy_of_the_known_outputs() {
    let (documents, properties) = with_background();
    let file = file(&shape(Pooling::Mean, 0.0), &properties, &documents);
    let reader = BilstmReader::new(&file, None);
    let examples = reader.examples(&documents[..5], None, Positives::Overlapping).unwrap();
    let network = RelationNetwork::new(&file, None, &Variables::new(3)).unwrap();
    let objective = RelationObjective::new(&network, examples.clone(), ALL, &TrainingOptions::default());
    let batch = objective.epoch(0).unwrap().remove(0);
    let weight = objective.weight(&batch);
    // Without dropout, training has the same loss.
    let expected = objective.learn(&batch, weight, 7, &mut zeros(network.variables())).unwrap();
    assert!((network.loss(&examples).unwrap() - expected).abs() < 1e-6);
    // All variables 0: each output is 1/2, and the loss is the logarithm of 2.
    for (_, var) in network.variables().all() {
        var.set(&var.zeros_like().unwrap()).unwrap();
    }
    assert!((network.loss(&examples).unwrap() - std::f64::consts::LN_2).abs() < 1e-6);
    assert_eq!(network.loss(&[]).unwrap(), 0.0);
}

#[test]
fn the_weights_with_the_least_validation_loss_are_kept() {
    let (documents, properties) = with_background();
    let source = serde_json::json!({"fold": 1, "documentId": "d", "documentText": "", "passages": []});
    let source: sporran_kilt::knowledgenet::Document = serde_json::from_value(source).unwrap();
    let held_out = |annotated| HeldOut { source: &source, annotated, links: None };
    let validation: Vec<HeldOut<'_>> = documents[12..].iter().map(held_out).collect();
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, model) = (folder.path().join("training"), folder.path().join("model"));
    let training = RelationTraining {
        properties: &properties,
        documents: &documents[..12],
        validation: &validation,
        device: DeviceName::Cpu,
        seed: 3,
        checkpoints: &checkpoints,
        model: &model,
    };
    let optimizer = TrainingOptions {
        epochs: 6,
        learning_rate: 0.05,
        warmup_steps: Some(0),
        ..TrainingOptions::default()
    };
    let shape = shape(Pooling::Mean, 0.0);
    let options = BilstmTraining { shape, pairs_per_batch: 8, optimizer, ..BilstmTraining::default() };
    options.train(&training, &mut |_| {}).unwrap();
    let history = std::fs::read_to_string(checkpoints.join("history.jsonl")).unwrap();
    let scores = history.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["score"].as_f64()
    });
    let scores: Vec<f64> = scores.collect();
    assert_eq!(scores.len(), 6);
    let least = -scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // The loss of the saved model, from its probabilities.
    let relations = BilstmRelations::load(&model, DeviceName::Cpu, Precision::F32).unwrap();
    let (mut sum, mut count) = (0.0, 0.0);
    for annotated in &documents[12..] {
        let scores = relations.score(&annotated.inputs()).unwrap();
        for (sentence, targets) in annotated.targets.iter().enumerate() {
            for target in targets {
                let links = annotated.has_right_links(sentence, target.pair, target.label);
                let own = &scores[sentence];
                let text = (own.of(target.pair, target.label), target.value > 0.5);
                for (probability, is) in [text, (own.of_links(target.pair, target.label), links)] {
                    let probability = f64::from(probability);
                    sum -= if is { probability } else { 1.0 - probability }.ln();
                    count += 1.0;
                }
            }
        }
    }
    assert!((sum / count - least).abs() < 1e-4, "{} {least}", sum / count);
}
