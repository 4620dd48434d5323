//! Training of networks.

use std::{ops::ControlFlow, path::Path};

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_kilt::kb::{EntityId, KnowledgeBase, Part, Triple, TripleIndex};

use super::{
    batch::{Example, Question, learn},
    model::{GraphNetwork, Network},
    options::NetworkOptions,
    pass::Edge,
};
use crate::{
    Error, Result,
    embedding::{
        LinkScores, OptimizerKind, Outcome, Progress, Weight,
        file::{Data, Mapped},
        optimizer::{State, Step},
        questions::{Directions, Questions, mixed},
        ranks,
    },
    learning::{self, Learner, Pass, Schedule},
};

/// The inputs of a network's training.
#[derive(Clone, Copy, Debug)]
pub struct NetworkLearning<'a> {
    /// The knowledge base with the training and validation triples.
    pub kb: &'a KnowledgeBase,
    /// The options of the network and of its training.
    pub options: &'a NetworkOptions,
    /// The seed of all random choices.
    pub seed: u64,
    /// The folder of the checkpoint and the best model. A checkpoint with the same options is resumed.
    pub folder: &'a Path,
}

/// The questions of an epoch, in order.
fn order(questions: &Questions<'_>, seed: u64, epoch: usize, most: Option<usize>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..questions.len()).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(mixed(seed, epoch, 0, 1)));
    order.truncate(most.unwrap_or(usize::MAX));
    order
}

/// A question with targets sampled for this epoch, whose edges are hidden.
fn example<'q>(
    questions: &'q Questions<'_>,
    at: usize,
    relations: usize,
    share: f64,
    seed: u64,
) -> Example<'q> {
    let (asked, answers, _) = questions.at(at);
    // Rows of subject questions follow those of object questions. The two steps of a relation are adjacent.
    let step = match asked.subjects {
        true => 2 * (asked.relation - relations as u32) + 1,
        false => 2 * asked.relation,
    };
    let question = Question { head: asked.entity, step };
    let count = (share * answers.len() as f64).round().max(1.0) as usize;
    let mut targets: Vec<u32> = answers.iter().map(|answer| answer.0).collect();
    targets.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    targets.truncate(count);
    let mut omitted: Vec<Edge> = targets
        .iter()
        .flat_map(|&target| [(question.head, step, target), (target, step ^ 1, question.head)])
        .collect();
    omitted.sort_unstable();
    Example { question, answers, targets, omitted }
}

/// The subgraph of the `count` entities with the most training triples. All relations stay.
fn core(kb: &KnowledgeBase, count: usize) -> Result<KnowledgeBase> {
    let mut triples = vec![0u32; kb.entity_count()];
    for triple in kb.triples(Part::Train) {
        triples[triple.subject.index()] += 1;
        triples[triple.object.index()] += 1;
    }
    let mut order: Vec<usize> = (0..triples.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(triples[at]), at));
    order.truncate(count);
    order.sort_unstable();
    let mut made = KnowledgeBase::default();
    let mut numbers = vec![None; triples.len()];
    for at in order {
        numbers[at] = Some(made.add_entity(kb.entity_name(EntityId(at as u32)))?);
    }
    for name in kb.relations().ids().iter() {
        made.add_relation(name)?;
    }
    for part in [Part::Train, Part::Valid] {
        for triple in kb.triples(part) {
            if let (Some(subject), Some(object)) =
                (numbers[triple.subject.index()], numbers[triple.object.index()])
            {
                made.add(part, Triple { subject, object, ..*triple })?;
            }
        }
    }
    Ok(made)
}

/// A network during training.
struct NetworkLearner<'a> {
    options: &'a NetworkOptions,
    seed: u64,
    relations: usize,
    questions: Questions<'a>,
    valid: Vec<Triple>,
    known: TripleIndex,
    /// The network over its training graph.
    over: GraphNetwork,
    states: Vec<State>,
}

/// Trains a network, or resumes an interrupted training. Neither resuming nor the number of threads changes
/// the result.
///
/// # Errors
/// [`Error::Argument`] for wrong options and without training triples; [`Error::Model`] for a checkpoint of another
/// training; write errors.
pub fn train(
    learning: &NetworkLearning<'_>,
    observe: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let NetworkLearning { kb: whole, options, seed, folder } = *learning;
    let train = &options.training;
    let cored;
    let kb = match train.core {
        Some(count) => {
            cored = core(whole, count)?;
            &cored
        }
        None => whole,
    };
    let triples = kb.triples(Part::Train);
    if triples.is_empty() {
        return Err(Error::Argument("expected training triples, found none".into()));
    }
    let mut network = Network::new(kb, options, seed)?;
    if let Some(from) = &options.from {
        network.take_over(&Network::open(from)?)?;
    }
    let sizes = network.parameters.tensors.iter().map(|tensor| tensor.values.len());
    let states = sizes.map(|size| State::new(OptimizerKind::Adam, size)).collect();
    let relations = kb.relation_count();
    let directions = Directions { relations, reciprocal: true };
    let mut valid = kb.triples(Part::Valid).to_vec();
    if let Some(count) = train.judged {
        valid.shuffle(&mut ChaCha8Rng::seed_from_u64(mixed(seed, 0, 0, 2)));
        valid.truncate(count);
    }
    let mut learner = NetworkLearner {
        options,
        seed,
        relations,
        questions: Questions::grouped(triples, None, Weight::Question, directions),
        known: if valid.is_empty() { TripleIndex::default() } else { kb.index(&Part::ALL) },
        valid,
        over: network.over(kb)?,
        states,
    };
    let mut same = options.clone();
    (same.training.epochs, same.training.patience) = (0, 0);
    let identity = learning::identity(&same, seed, whole)?;
    let schedule = Schedule {
        epochs: train.epochs,
        evaluate_every: train.evaluate_every,
        patience: train.patience,
        learning_rate: train.learning_rate,
        decay: train.decay,
        decay_patience: 0,
        milestones: &[],
    };
    learning::run(&mut learner, schedule, &identity, folder, observe)
}

impl Learner for NetworkLearner<'_> {
    fn learn(&mut self, Pass { epoch, rate, step }: Pass<'_>) -> Result<f64> {
        let Self { seed, relations, .. } = *self;
        let train = &self.options.training;
        let order = order(&self.questions, seed, epoch, train.questions);
        let (mut loss, mut batches) = (0.0, 0);
        for (batch, which) in order.chunks(train.batch_size).enumerate() {
            let seeds = (3u64..).map(|purpose| mixed(seed, epoch, batch, purpose));
            let examples: Vec<Example<'_>> = which
                .iter()
                .zip(seeds)
                .map(|(at, seed)| example(&self.questions, *at, relations, train.held_out, seed))
                .collect();
            let GraphNetwork { network, graph, traces, .. } = &mut self.over;
            let (found, gradients) = learn(&network.parameters, graph, traces, &examples);
            *step += 1;
            let step = Step::new(OptimizerKind::Adam, rate, *step);
            let tensors = network.parameters.tensors.iter_mut().zip(&gradients).zip(&mut self.states);
            for ((tensor, gradient), state) in tensors {
                step.dense(&mut tensor.values, gradient, state);
            }
            loss += found;
            batches += 1;
        }
        Ok(loss / f64::from(batches))
    }

    fn evaluate(&self) -> Result<Option<LinkScores>> {
        if self.valid.is_empty() {
            return Ok(None);
        }
        let found = ranks(&self.over, &self.valid, &self.known)?;
        Ok(Some(LinkScores::of(found.iter().flat_map(|ranks| [ranks.object, ranks.subject]))))
    }

    fn save(&self, folder: &Path) -> Result<()> {
        self.over.network.save(folder)
    }

    fn tensors(&self) -> Result<Vec<(String, Vec<usize>, Data<'_>)>> {
        Ok(self.over.network.tensors())
    }

    fn restore(&mut self, from: &Mapped) -> Result<()> {
        for tensor in &mut self.over.network.parameters.tensors {
            tensor.values = from.values(&tensor.name, tensor.shape)?;
        }
        Ok(())
    }

    fn states(&self) -> &[State] {
        &self.states
    }

    fn states_mut(&mut self) -> &mut [State] {
        &mut self.states
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedding::{evaluate, log_probabilities};

    /// Families on a line: `parent` advances by one, `grandparent` by two. Some `grandparent` triples are in
    /// the validation part. All `parent` triples are in the training part.
    fn families(first: u32, count: u32) -> KnowledgeBase {
        let mut kb = KnowledgeBase::default();
        for at in 0..count {
            kb.add_entity(&format!("Q{}", first + at)).unwrap();
        }
        for name in ["parent", "grandparent"] {
            kb.add_relation(name).unwrap();
        }
        for at in 0..count {
            kb.add(Part::Train, Triple::new(at, 0, (at + 1) % count)).unwrap();
            let part = if at % 4 == 3 { Part::Valid } else { Part::Train };
            kb.add(part, Triple::new(at, 1, (at + 2) % count)).unwrap();
        }
        kb
    }

    fn options(epochs: usize) -> NetworkOptions {
        let mut options = NetworkOptions { layers: 2, ..NetworkOptions::default() };
        options.training.epochs = epochs;
        options.training.batch_size = 8;
        options.training.evaluate_every = 2;
        options.training.patience = 50;
        options
    }

    fn run(options: &NetworkOptions, folder: &Path, stop: usize) -> Outcome {
        let kb = families(0, 24);
        let learning = NetworkLearning { kb: &kb, options, seed: 5, folder };
        let mut observe = |progress: &Progress| {
            if progress.epoch == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        train(&learning, &mut observe).unwrap()
    }

    #[test]
    fn what_paths_say_is_learned_and_holds_for_entities_never_seen() {
        let folder = tempfile::tempdir().unwrap();
        let outcome = run(&options(12), folder.path(), usize::MAX);
        assert!(outcome.best.unwrap().1 > 0.9, "{outcome:?}");
        let network = Network::open(&outcome.model).unwrap();
        // Other entities, and another number of them.
        let kb = families(100, 40);
        let over = network.clone().over(&kb).unwrap();
        let known = kb.index(&[Part::Train, Part::Valid]);
        let report = evaluate(&over, &kb, kb.triples(Part::Valid), &known).unwrap();
        assert!(report.all.mrr.or_zero() > 0.9, "{:?}", report.all);
        // A triple that holds is more plausible than its neighbours.
        let held = kb.triples(Part::Valid)[0];
        let other = Triple::new(held.subject.0, held.relation.0, (held.object.0 + 1) % 40);
        let scores = log_probabilities(&over, &[held, other], &kb.index(&[Part::Train])).unwrap();
        assert!(scores[0].among_unknown > scores[1].among_unknown, "{scores:?}");
        // Two parent steps lead to a grandparent.
        let [a, b, c] = [0, 1, 2].map(|by| (held.subject.0 + by) % 40);
        let question = (held.subject, held.relation);
        let paths = over.explain(question, false, held.object, 3).unwrap();
        assert_eq!(paths[0].triples, [Triple::new(a, 0, b), Triple::new(b, 0, c)], "{paths:?}");
        assert!(paths.len() <= 3 && paths.is_sorted_by(|a, b| a.weight >= b.weight), "{paths:?}");
        let question = (held.object, held.relation);
        let paths = over.explain(question, true, held.subject, 1).unwrap();
        assert_eq!(paths[0].triples, [Triple::new(b, 0, c), Triple::new(a, 0, b)], "{paths:?}");
        let mut strange = families(0, 30);
        strange.add_relation("cousin").unwrap();
        let message = network.over(&strange).err().unwrap().to_string();
        assert!(message.contains("`cousin`"), "{message}");
        // The parameters of `parent` are copied; only `cousin` must be learned.
        strange.add(Part::Train, Triple::new(0, 2, 1)).unwrap();
        let first = |options: &NetworkOptions| {
            let folder = tempfile::tempdir().unwrap();
            let learning = NetworkLearning { kb: &strange, options, seed: 5, folder: folder.path() };
            train(&learning, &mut |_| ControlFlow::Continue(())).map(|outcome| outcome.best.unwrap().1)
        };
        let mut short = options(1);
        short.training.learning_rate = 1e-6;
        let untrained = first(&short).unwrap();
        short.from = Some(outcome.model.clone());
        let pretrained = first(&short).unwrap();
        assert!(pretrained > 0.9 && untrained < 0.5, "{pretrained} {untrained}");
        short.layers = 3;
        let message = first(&short).unwrap_err().to_string();
        assert!(message.contains("expected a network of 3 layers of 32 values, found 2 of 32"), "{message}");
    }

    #[test]
    fn a_killed_training_ends_with_the_same_bytes_on_any_number_of_threads() {
        let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let expected = run(&options(6), whole.path(), usize::MAX);
        // Training that stopped after epoch 3 resumes from the checkpoint after epoch 2.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let found = pool.install(|| {
            run(&options(6), broken.path(), 3);
            run(&options(6), broken.path(), usize::MAX)
        });
        assert_eq!((found.epochs, found.best), (expected.epochs, expected.best));
        for file in ["checkpoint.safetensors", "model/network.safetensors"] {
            let read = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
            assert!(read(whole.path()) == read(broken.path()), "{file}");
        }
        let kb = families(0, 24);
        let other = NetworkOptions { layers: 3, ..options(6) };
        let learning = NetworkLearning { kb: &kb, options: &other, seed: 5, folder: whole.path() };
        let message = train(&learning, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(message.contains("other options"), "{message}");
    }

    #[test]
    fn the_core_of_a_graph_has_its_busiest_entities_and_all_relations() {
        let mut kb = families(0, 8);
        for at in [1, 4, 6] {
            kb.add(Part::Train, Triple::new(at, 0, 2)).unwrap();
            kb.add(Part::Valid, Triple::new(2, 1, at)).unwrap();
        }
        let found = core(&kb, 3).unwrap();
        let names: Vec<&str> = found.entities().ids().iter().collect();
        assert_eq!((names, found.relation_count()), (vec!["Q2", "Q4", "Q6"], 2));
        let triples = |part: Part| -> Vec<(u32, u32, u32)> {
            found.triples(part).iter().map(|t| (t.subject.0, t.relation.0, t.object.0)).collect()
        };
        assert_eq!(triples(Part::Train), [(0, 1, 1), (1, 1, 2), (1, 0, 0), (2, 0, 0)]);
        assert_eq!(triples(Part::Valid), [(0, 1, 1), (0, 1, 2)]);
    }

    #[test]
    fn a_training_query_does_not_see_the_edges_to_its_answers() {
        let triples =
            [Triple::new(0, 0, 1), Triple::new(0, 0, 2), Triple::new(0, 1, 2), Triple::new(3, 1, 3)];
        let directions = Directions { relations: 2, reciprocal: true };
        let questions = Questions::grouped(&triples, None, Weight::Question, directions);
        let of = |head, step, share| {
            let examples = (0..questions.len()).map(|at| example(&questions, at, 2, share, 1));
            examples.into_iter().find(|example| example.question == Question { head, step }).unwrap()
        };
        let some = of(0, 0, 0.3);
        assert_eq!((some.answers, some.targets.len()), (&[EntityId(1), EntityId(2)][..], 1));
        let target = some.targets[0];
        assert_eq!(some.omitted, [(0, 0, target), (target, 1, 0)]);
        assert_eq!(of(0, 0, 1.0).omitted, [(0, 0, 1), (0, 0, 2), (1, 1, 0), (2, 1, 0)]);
        assert_eq!(of(2, 3, 1.0).omitted, [(0, 2, 2), (2, 3, 0)]);
        // A node's edge to itself has two directions, each once.
        assert_eq!(of(3, 2, 1.0).omitted, [(3, 2, 3), (3, 3, 3)]);
    }
}
