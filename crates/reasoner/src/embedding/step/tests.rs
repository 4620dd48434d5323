//! Compares every gradient with finite differences of the loss.

use serde_json::json;
use sporran_kilt::kb::Triple;

use super::*;
use crate::embedding::questions::Questions;

/// The triples contain nine of them.
const ENTITY_COUNT: usize = 14;

fn triples() -> Vec<Triple> {
    (0..14u32).map(|at| Triple::new(at * 5 % 4, at % 3, (at * 7 + 2) % 9)).collect()
}

/// The loss of one batch and all its gradients, entities first.
fn gradients(
    options: &EmbeddingOptions,
    shape: &Shape,
    parameters: &Parameters,
    triples: &[Triple],
) -> (f64, Vec<Vec<f32>>) {
    let training = &options.training;
    let questions = Questions::new(triples, training, shape.directions);
    let batch = Batch::new((0..questions.len()).map(|at| questions.at(at)), training);
    let mut stepper = Stepper::new(shape, options);
    let place = Place { seed: 3, epoch: 1, batch: 2 };
    let found = stepper.gradients(parameters, &batch, place).unwrap();
    let table = parameters.entities.values().unwrap();
    let width = shape.width();
    let mut entities = vec![0.0; table.len()];
    match found.entities {
        ToEntities::Dense(dense) => {
            // In two blocks, as in a training with more entities.
            let (first, second) = entities.split_at_mut(4 * width);
            dense.piece(0, &table[..4 * width], first);
            dense.piece(4, &table[4 * width..], second);
        }
        ToEntities::Sparse { rows, values } => {
            for (row, gradient) in rows.iter().zip(values.chunks_exact(width)) {
                entities[*row as usize * width..][..width].copy_from_slice(gradient);
            }
        }
    }
    let mut all = vec![entities];
    all.append(&mut stepper.gradients);
    // The reported loss does not contain the penalty.
    let mut loss = found.loss;
    let penalty = training.regularizer;
    if penalty.entity > 0.0 {
        let size = |row: &[f32]| -> f64 {
            let power = f64::from(penalty.power);
            if shape.model == ModelKind::ComplEx && penalty.power == 3 {
                let half = row.len() / 2;
                (0..half).map(|k| f64::from(row[k]).hypot(f64::from(row[half + k])).powf(power)).sum()
            } else {
                row.iter().map(|x| f64::from(x.abs()).powf(power)).sum()
            }
        };
        let relations = &parameters.tensors[RELATIONS].values;
        let relation_width = shape.relation_width();
        for triple in triples {
            let rows =
                [triple.subject, triple.object].map(|e| size(&table[e.index() * width..][..shape.dim]));
            // Each triple is two questions, each with subject, relation and object.
            loss += penalty.entity * (rows[0] + rows[1]) / triples.len() as f64;
            let row = |at: usize| size(&relations[at * relation_width..][..relation_width]);
            let forward = triple.relation.index();
            let backward =
                if shape.directions.reciprocal { forward + shape.directions.relations } else { forward };
            let both = if shape.model == ModelKind::RotatE { 0.0 } else { row(forward) + row(backward) };
            loss += penalty.relation * both / 2.0 / triples.len() as f64;
        }
    }
    (loss, all)
}

/// Compares every gradient with finite differences.
fn check(json: serde_json::Value) {
    // Tiny batches on many threads would only wait for each other.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| check_alone(json));
}

fn check_alone(json: serde_json::Value) {
    let options: EmbeddingOptions = serde_json::from_value(json).unwrap();
    assert_eq!(options.mistakes(), []);
    let shape = Shape::new(&options, ENTITY_COUNT, 3);
    let mut parameters = Parameters::new(&shape, &options, 11);
    let triples = triples();
    let (here, found) = gradients(&options, &shape, &parameters, &triples);
    let mut compared = 0;
    for (which, gradient) in found.iter().enumerate() {
        // A sample of the values, spread evenly.
        for at in (0..gradient.len()).step_by((gradient.len() / 60).max(1)) {
            let mut moved = |by: f32| {
                let values = match which {
                    0 => match parameters.entities.rows_mut() {
                        Rows::F32(values) => values,
                        _ => unreachable!(),
                    },
                    _ => &mut parameters.tensors[which - 1].values,
                };
                let before = values[at];
                values[at] += by;
                let loss = gradients(&options, &shape, &parameters, &triples).0;
                match which {
                    0 => match parameters.entities.rows_mut() {
                        Rows::F32(values) => values[at] = before,
                        _ => unreachable!(),
                    },
                    _ => parameters.tensors[which - 1].values[at] = before,
                }
                loss
            };
            let by = 1e-3;
            // Near a kink of the loss, the gradient is that of one of its sides.
            let by_64 = f64::from(by);
            let (left, right) = ((here - moved(-by)) / by_64, (moved(by) - here) / by_64);
            let slack = 2e-3 + 0.01 * left.abs();
            let value = f64::from(gradient[at]);
            assert!(
                value > left.min(right) - slack && value < left.max(right) + slack,
                "{options:?}: tensor {which} at {at}: {value} between {left} and {right}"
            );
            compared += 1;
        }
    }
    assert!(compared > 60, "{compared}");
}

fn models() -> Vec<serde_json::Value> {
    vec![
        json!({ "model": "distmult", "dim": 6 }),
        json!({ "model": "complex", "dim": 6 }),
        json!({ "model": "transe", "dim": 6 }),
        json!({ "model": "transe", "dim": 6, "norm": "l1" }),
        json!({ "model": "rotate", "dim": 6 }),
        json!({ "model": "rotate", "dim": 6, "norm": "l2" }),
        json!({ "model": "rescal", "dim": 4 }),
        json!({ "model": "tucker", "dim": 4, "relation-dim": 3 }),
        json!({ "model": "conve", "dim": 12, "height": 3, "filters": 2, "map-dropout": 0.2, "hidden-dropout": 0.2 }),
        json!({ "model": "conve", "dim": 12, "height": 3, "filters": 2, "affine": false }),
    ]
}

fn with(mut model: serde_json::Value, more: &serde_json::Value) -> serde_json::Value {
    model["initial"] = json!("normal");
    model["initial-scale"] = json!(0.7);
    for (key, value) in more.as_object().unwrap() {
        model[key] = value.clone();
    }
    model
}

#[test]
fn gradients_among_all_entities_are_those_of_every_model_and_loss() {
    for model in models() {
        for loss in ["cross-entropy", "binary"] {
            for regime in ["one-vs-all", "kvs-all"] {
                check(with(
                    model.clone(),
                    &json!({
                        "entity-dropout": 0.2, "relation-dropout": 0.2, "candidate-dropout": 0.1,
                        "training": { "loss": loss, "regime": regime, "label-smoothing": 0.1 }
                    }),
                ));
            }
        }
    }
}

#[test]
fn gradients_among_a_sample_of_the_entities_are_those_of_every_model() {
    // Two of five.
    for model in models() {
        for (regime, smoothing) in [("kvs-all", 0.3), ("one-vs-all", 0.0)] {
            check(with(
                model.clone(),
                &json!({ "entity-dropout": 0.2, "candidate-dropout": 0.1, "training": {
                    "regime": regime, "label-smoothing": smoothing, "sampled-entities": 2,
                    "regularizer": { "power": 2, "entity": 0.3 }
                } }),
            ));
        }
    }
}

#[test]
fn gradients_among_negatives_are_those_of_every_model_and_loss() {
    for model in models() {
        for loss in ["cross-entropy", "binary", "margin", "self-adversarial"] {
            for (shared, weight) in [(1, "triple"), (3, "subsampled")] {
                check(with(
                    model.clone(),
                    &json!({ "entity-dropout": 0.2, "candidate-dropout": 0.1, "training": {
                        "loss": loss, "regime": "negative-sampling", "margin": 1.0, "temperature": 0.0,
                        "object-negatives": 4, "subject-negatives": 3, "share-negatives": shared,
                        "weight": weight
                    } }),
                ));
            }
        }
    }
}

#[test]
fn predicting_relations_adds_its_gradients() {
    for model in ["distmult", "complex"] {
        for (regime, reciprocal) in [("kvs-all", true), ("one-vs-all", true), ("kvs-all", false)] {
            check(with(
                json!({ "model": model, "dim": 6 }),
                &json!({ "reciprocal": reciprocal, "entity-dropout": 0.2,
                    "training": { "regime": regime, "relation-weight": 0.7 } }),
            ));
        }
    }
}

#[test]
fn one_relation_for_both_directions_has_the_gradients_of_both() {
    for model in models().into_iter().filter(|model| model["model"] != "conve") {
        check(with(model, &json!({ "reciprocal": false, "relation-dropout": 0.2 })));
    }
}

#[test]
fn penalties_have_the_gradients_of_their_formulas() {
    for model in ["distmult", "complex", "rotate"] {
        for power in [2, 3] {
            for regime in ["kvs-all", "one-vs-all", "negative-sampling"] {
                let penalty = json!({ "power": power, "entity": 0.3, "relation": 0.2 });
                check(with(
                    json!({ "model": model, "dim": 6 }),
                    &json!({ "training": { "regime": regime, "regularizer": penalty } }),
                ));
            }
        }
    }
}

#[test]
fn gradients_of_rounded_products_are_near_those_in_32_bits() {
    for model in models() {
        let of = |precision: &str| {
            let more = json!({ "candidate-dropout": 0.1, "training": { "regime": "kvs-all", "precision": precision } });
            let options: EmbeddingOptions = serde_json::from_value(with(model.clone(), &more)).unwrap();
            let shape = Shape::new(&options, ENTITY_COUNT, 3);
            gradients(&options, &shape, &Parameters::new(&shape, &options, 11), &triples())
        };
        let (plain, rounded) = (of("f32"), of("bf16"));
        assert!((plain.0 - rounded.0).abs() < 0.01 * plain.0, "{model}: {} {}", plain.0, rounded.0);
        let length = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
        let all = plain.1.iter().flatten().zip(rounded.1.iter().flatten());
        let error = length(&mut all.map(|(plain, rounded)| plain - rounded));
        let whole = length(&mut plain.1.iter().flatten().copied());
        assert!(error < 0.02 * whole, "{model}: {error} of {whole}");
    }
}

#[test]
fn grouping_by_question_is_the_loss_of_single_triples() {
    for model in models() {
        let of = |regime: &str, max_answers: Option<usize>, triples: &[Triple]| {
            // Batch statistics make ConvE's questions depend on each other. Dropout would differ.
            let more = json!({ "map-dropout": 0.0, "hidden-dropout": 0.0,
                "training": { "regime": regime, "label-smoothing": 0.1, "max-answers": max_answers } });
            let options: EmbeddingOptions = serde_json::from_value(with(model.clone(), &more)).unwrap();
            options.check().unwrap();
            let shape = Shape::new(&options, ENTITY_COUNT, 3);
            let parameters = Parameters::new(&shape, &options, 11);
            gradients(&options, &shape, &parameters, triples)
        };
        if model["model"] == "conve" {
            continue;
        }
        let triples = triples();
        let asked = of("one-vs-all", None, &triples);
        let single: f64 = triples.iter().map(|triple| of("one-vs-all", None, &[*triple]).0).sum();
        assert!((asked.0 - single / triples.len() as f64).abs() < 1e-5, "{model}");
        for max_answers in [None, Some(1)] {
            let grouped = of("kvs-all", max_answers, &triples);
            assert!((grouped.0 - asked.0).abs() < 1e-5, "{model}");
            for (a, b) in grouped.1.iter().flatten().zip(asked.1.iter().flatten()) {
                assert!((a - b).abs() < 1e-5, "{model}");
            }
        }
    }
}
