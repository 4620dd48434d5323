use super::*;
use crate::tuned::tests::{self, tiny};

fn queries() -> Vec<RankingQuery> {
    let query = |at: usize, count: usize| RankingQuery {
        query: None,
        rows: tests::rows(count, at as u32),
        targets: (0..count).map(|row| ((row * 7 + at) % 4) as f32 / 3.0).collect(),
        offsets: Vec::new(),
    };
    vec![query(0, 6), query(1, 3), query(2, 9), query(3, 2)]
}

fn options(tokens_per_batch: usize) -> TrainingOptions {
    TrainingOptions { tokens_per_batch, seed: 4, ..TrainingOptions::default() }
}

#[test]
fn an_epoch_shows_every_query_once_within_the_budget_and_in_an_order_of_its_own() {
    let encoder = tiny(1, 0.0);
    let objective =
        RankingObjective::new(&encoder, queries(), RankingLoss::Listwise, Some(4), &options(40)).unwrap();
    let seen = |epoch| {
        let batches = objective.epoch(epoch).unwrap();
        for batch in &batches {
            assert!(batch.shown.len() == 1 || objective.tokens(batch) <= 40);
        }
        batches.into_iter().flat_map(|batch| batch.shown).collect::<Vec<_>>()
    };
    let first = seen(0);
    assert_eq!(first, seen(0));
    assert_ne!(first, seen(1));
    let mut numbers: Vec<usize> = first.iter().map(|(query, _)| *query).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3]);
    for (query, shown) in first {
        assert_eq!(shown.len(), queries()[query].rows.len().min(4));
        assert!(shown.is_sorted());
    }
}

#[test]
fn half_of_what_is_shown_has_a_target_above_zero_where_there_are_enough_of_both() {
    let encoder = tiny(1, 0.0);
    let query = |targets: &[f32]| RankingQuery {
        query: None,
        rows: tests::rows(targets.len(), 0),
        targets: targets.to_vec(),
        offsets: Vec::new(),
    };
    let given = vec![
        query(&[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
        query(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        query(&[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]),
    ];
    let objective =
        RankingObjective::new(&encoder, given.clone(), RankingLoss::Listwise, Some(4), &options(500))
            .unwrap();
    let batch = objective.epoch(3).unwrap().remove(0);
    for (query, shown) in batch.shown {
        let good = shown.iter().filter(|&&row| given[query].targets[row] > 0.0).count();
        // Two of four; one where there is no other; three where there is one without.
        assert_eq!(good, [2, 1, 3][query]);
    }
}

#[test]
fn a_query_that_nothing_can_be_learned_from_is_left_out() {
    let encoder = tiny(1, 0.0);
    let mut given = queries();
    given[1].targets.fill(0.0);
    let objective =
        RankingObjective::new(&encoder, given, RankingLoss::Pairwise, None, &options(500)).unwrap();
    let batch = objective.epoch(0).unwrap().remove(0);
    assert_eq!(batch.shown.len(), 3);
    assert!(batch.shown.iter().all(|(query, _)| *query != 1));
}

#[test]
fn a_cross_encoder_memorises_an_order() {
    let encoder = tiny(1, 0.0);
    let options = TrainingOptions { learning_rate: 3e-3, ..options(200) };
    for loss in [RankingLoss::Binary, RankingLoss::Pairwise, RankingLoss::Listwise, RankingLoss::MarginMse] {
        let encoder = tiny(encoder.config().labels().len(), 0.0);
        let objective = RankingObjective::new(&encoder, queries(), loss, None, &options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let training = crate::Training {
            objective: &objective,
            variables: encoder.variables(),
            options: &TrainingOptions { steps: 150, warmup_steps: Some(5), ..options.clone() },
            evaluate: None,
            folder: folder.path(),
            extra_files: &[],
        };
        crate::train(&training, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        for query in queries() {
            let scores = encoder.scores(&query.rows, 64).unwrap();
            let best = |values: &[f32]| {
                let greatest = values.iter().copied().fold(f32::MIN, f32::max);
                values.iter().position(|value| *value == greatest).unwrap()
            };
            let greatest = query.targets[best(&query.targets)];
            assert_eq!(query.targets[best(&scores)], greatest, "{loss:?}");
        }
    }
}

#[test]
fn vectors_memorise_an_order() {
    let encoder = super::super::tuned::tests::tiny_for(sporran_transformers::BertTask::States, 1, 0.0);
    let given: Vec<RankingQuery> = queries()
        .into_iter()
        .enumerate()
        .map(|(at, query)| RankingQuery { query: tests::rows(9, 5).get(at).cloned(), ..query })
        .collect();
    let options = TrainingOptions { steps: 150, warmup_steps: Some(5), learning_rate: 3e-3, ..options(200) };
    let objective =
        RankingObjective::of_vectors(&encoder, 8.0, given.clone(), RankingLoss::Listwise, None, &options)
            .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let training = crate::Training {
        objective: &objective,
        variables: encoder.variables(),
        options: &options,
        evaluate: None,
        folder: folder.path(),
        extra_files: &[],
    };
    crate::train(&training, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    for query in given {
        let scores = encoder.cosines(query.query.as_ref().unwrap(), &query.rows).unwrap();
        assert!(scores.iter().all(|score| score.abs() < 1.0001));
        let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap();
        let greatest = query.targets.iter().copied().fold(0.0, f32::max);
        assert_eq!(query.targets[best], greatest);
    }
    let error = RankingObjective::of_vectors(&encoder, 8.0, queries(), RankingLoss::Listwise, None, &options);
    assert!(error.err().unwrap().to_string().contains("a separate row for query 0"));
}

#[test]
fn offsets_count_in_the_loss_as_if_the_model_had_given_them() {
    let encoder = tiny(1, 0.0);
    let loss = |offsets: Vec<f32>| {
        let mut given = queries();
        given.truncate(1);
        given[0].offsets = offsets;
        let objective = RankingObjective::new(&encoder, given, RankingLoss::Listwise, None, &options(500))?;
        let batch = objective.epoch(0)?.remove(0);
        let mut zeros: Gradients =
            encoder.variables().all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
        objective.learn(&batch, 1.0, 0, &mut zeros)
    };
    let scores = encoder.scores(&queries()[0].rows, 500).unwrap();
    let offsets: Vec<f32> = (0..6).map(|at| at as f32 - 2.0).collect();
    let sums: Vec<f32> = scores.iter().zip(&offsets).map(|(a, b)| a + b).collect();
    let (expected, _) = RankingLoss::Listwise.evaluate(&sums, &queries()[0].targets);
    assert!((loss(offsets).unwrap() - expected).abs() < 1e-5);
    assert!(loss(vec![1.0]).unwrap_err().to_string().contains("6 offsets of query 0"));
}

#[test]
fn a_stopped_training_with_dropout_goes_on_to_the_same_weights() {
    let run = |folder: &std::path::Path, stop: u64| {
        let encoder = tiny(2, 0.2);
        let options = TrainingOptions {
            epochs: 3,
            warmup_steps: Some(1),
            batches_per_step: 2,
            learning_rate: 1e-3,
            ..options(40)
        };
        let objective =
            RankingObjective::new(&encoder, queries(), RankingLoss::Pairwise, Some(3), &options).unwrap();
        let training = crate::Training {
            objective: &objective,
            variables: encoder.variables(),
            options: &options,
            evaluate: None,
            folder,
            extra_files: &[],
        };
        let outcome = crate::train(&training, &mut |progress| {
            if progress.step == stop {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        })
        .unwrap();
        let values = |var: candle_core::Var| var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let weights: Vec<Vec<f32>> =
            encoder.variables().all().into_iter().map(|(_, var)| values(var)).collect();
        (weights, outcome)
    };
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (expected, all) = run(whole.path(), 0);
    let (_, first) = run(parts.path(), 2);
    assert!(!first.finished && all.step > 3);
    assert_eq!(run(parts.path(), 0).0, expected);
}

#[test]
fn wrong_targets_heads_and_options_are_refused() {
    let encoder = tiny(1, 0.0);
    let build = |query: RankingQuery, candidates| {
        RankingObjective::new(&encoder, vec![query], RankingLoss::Binary, candidates, &options(9))
            .err()
            .map(|error| error.to_string())
    };
    let query = |targets: Vec<f32>| RankingQuery {
        query: None,
        rows: tests::rows(2, 0),
        targets,
        offsets: Vec::new(),
    };
    assert!(build(query(vec![0.5]), None).unwrap().contains("2 targets of query 0"));
    assert!(build(query(vec![0.5, 1.5]), None).unwrap().contains("1.5"));
    assert!(build(query(vec![0.5, 1.0]), Some(1)).unwrap().contains("at least 2"));
    let three = tiny(3, 0.0);
    let wrong =
        RankingObjective::new(&three, Vec::new(), RankingLoss::Binary, None, &options(9)).err().unwrap();
    assert!(wrong.to_string().contains("3 labels"));
}
