//! A trained network in a folder, and a network over a graph.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};
use sporran_kernels::Adjacency;
use sporran_kilt::{
    jsonl,
    kb::{EntityId, KnowledgeBase, Names, Part, RelationId},
};

use super::{
    batch::{Question, Traces, explain, score},
    options::NetworkOptions,
    parameters::{Parameters, Sizes},
    paths::Path as GraphPath,
};
use crate::{
    Error, Result,
    embedding::{
        TripleScorer,
        file::{self, Data},
        scorer,
    },
};

/// The file that describes the network, and that of the values.
const ABOUT: &str = "network.json";
const VALUES: &str = "network.safetensors";

/// The contents of `network.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    relations: Vec<String>,
    network: NetworkOptions,
}

/// A network with the names of its relations. It stores no entities, so it works on any graph over these
/// relations.
#[derive(Clone, Debug)]
pub struct Network {
    pub(super) options: NetworkOptions,
    relations: Names,
    pub(super) parameters: Parameters,
}

impl Network {
    /// An untrained network with values sampled by `seed`.
    pub(super) fn new(kb: &KnowledgeBase, options: &NetworkOptions, seed: u64) -> Result<Self> {
        options.check()?;
        let sizes = Sizes::new(options, kb.relation_count());
        let relations = kb.relations().ids().clone();
        let options = NetworkOptions { from: None, ..options.clone() };
        Ok(Self { options, relations, parameters: Parameters::new(sizes, seed) })
    }

    /// Initialises from another network of the same size. Relation parameters are copied by name, shared ones
    /// all.
    pub(super) fn take_over(&mut self, other: &Self) -> Result<()> {
        let sizes = |network: &Self| (network.parameters.sizes.dim, network.parameters.sizes.layers);
        if sizes(self) != sizes(other) {
            let ((dim, layers), (other_dim, other_layers)) = (sizes(self), sizes(other));
            return Err(Error::Argument(format!(
                "`network.from`: expected a network of {layers} layers of {dim} values, found {other_layers} of {other_dim}"
            )));
        }
        let known = self
            .relations
            .iter()
            .enumerate()
            .filter_map(|(own, name)| Some((own, other.relations.number(name)?)));
        let steps: Vec<(usize, usize)> = known
            .flat_map(|(own, other)| [0, 1].map(|way| (2 * own + way, 2 * other as usize + way)))
            .collect();
        tracing::info!(relations = steps.len() / 2, "copied the parameters of relations");
        self.parameters.take_over(&other.parameters, &steps);
        Ok(())
    }

    /// Whether a folder holds a network.
    #[must_use]
    pub fn is_in(folder: &Path) -> bool {
        folder.join(ABOUT).is_file()
    }

    /// Opens a folder that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// Read errors; [`Error::Model`] if the files do not belong together.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(ABOUT);
        let about: About = jsonl::read_json(&path)?;
        if let Some((key, message)) = about.network.mistakes().into_iter().next() {
            return Err(Error::model(&path, format!("`network.{key}`: {message}")));
        }
        let mut relations = Names::default();
        for name in &about.relations {
            relations.intern(name);
        }
        if relations.len() != about.relations.len() {
            let message =
                format!("expected {} different relations, found {}", about.relations.len(), relations.len());
            return Err(Error::model(&path, message));
        }
        let mapped = file::Mapped::open(&folder.join(VALUES))?;
        let sizes = Sizes::new(&about.network, relations.len());
        let parameters = Parameters::of(sizes, |name, shape, _| mapped.values(name, shape))?;
        Ok(Self { options: about.network, relations, parameters })
    }

    /// Writes options and relations, then the values. Each file is written atomically.
    ///
    /// # Errors
    /// Write errors.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let relations = self.relations.iter().map(str::to_owned).collect();
        jsonl::write_json(folder.join(ABOUT), &About { relations, network: self.options.clone() })?;
        file::write(&folder.join(VALUES), &BTreeMap::new(), &self.tensors())
    }

    /// All values for writing.
    pub(super) fn tensors(&self) -> Vec<(String, Vec<usize>, Data<'_>)> {
        let tensors = self.parameters.tensors.iter();
        tensors
            .map(|tensor| (tensor.name.clone(), tensor.shape.to_vec(), Data::F32(&tensor.values)))
            .collect()
    }

    /// The options of the network.
    #[must_use]
    pub fn options(&self) -> &NetworkOptions {
        &self.options
    }

    /// Applies the network to the training part of a knowledge base. It may contain entities that were not
    /// trained on.
    ///
    /// # Errors
    /// [`Error::Argument`] for a relation that the network does not have.
    pub fn over(self, kb: &KnowledgeBase) -> Result<GraphNetwork> {
        let numbers: Vec<u32> = kb
            .relations()
            .ids()
            .iter()
            .map(|name| {
                self.relations.number(name).ok_or_else(|| {
                    Error::Argument(format!("expected relations that the network knows, found `{name}`"))
                })
            })
            .collect::<Result<_>>()?;
        let triples: Vec<(u32, u32, u32)> = kb
            .triples(Part::Train)
            .iter()
            .map(|triple| (triple.subject.0, numbers[triple.relation.index()], triple.object.0))
            .collect();
        let graph = Adjacency::new(kb.entity_count(), self.relations.len(), &triples);
        Ok(GraphNetwork { network: self, graph, numbers, traces: Traces::default() })
    }
}

/// A network over a graph, which scores its triples.
pub struct GraphNetwork {
    pub(super) network: Network,
    pub(super) graph: Adjacency,
    /// The network's id of each relation of the knowledge base.
    pub(super) numbers: Vec<u32>,
    pub(super) traces: Traces,
}

impl GraphNetwork {
    /// The paths with the largest weights for `answer`. The answer is the object of the question, or its
    /// subject with `subjects`. At most `most` paths, best first, in the relations of the knowledge base.
    ///
    /// # Errors
    /// [`Error::Argument`] for an id that is too large.
    pub fn explain(
        &self,
        (entity, relation): (EntityId, RelationId),
        subjects: bool,
        answer: EntityId,
        most: usize,
    ) -> Result<Vec<GraphPath>> {
        let counts = (self.entity_count(), self.relation_count());
        scorer::check([(entity, relation), (answer, relation)].into_iter(), counts, None)?;
        let question = self.question(entity, relation, subjects);
        let network = &self.network;
        let mut paths = explain(&network.parameters, &self.graph, &self.traces, question, answer.0, most);
        for triple in paths.iter_mut().flat_map(|path| &mut path.triples) {
            // Every edge is a triple of the knowledge base, so its relation has an id there.
            let number = self.numbers.iter().position(|number| *number == triple.relation.0);
            triple.relation = RelationId(number.unwrap_or_default() as u32);
        }
        Ok(paths)
    }

    fn question(&self, entity: EntityId, relation: RelationId, subjects: bool) -> Question {
        Question { head: entity.0, step: 2 * self.numbers[relation.index()] + u32::from(subjects) }
    }

    fn fill(&self, questions: &[(EntityId, RelationId)], subjects: bool, scores: &mut [f32]) -> Result<()> {
        let counts = (self.entity_count(), self.relation_count());
        scorer::check(questions.iter().copied(), counts, Some((questions.len(), scores.len())))?;
        let asked: Vec<Question> =
            questions.iter().map(|&(entity, relation)| self.question(entity, relation, subjects)).collect();
        score(&self.network.parameters, &self.graph, &self.traces, &asked, scores);
        Ok(())
    }
}

impl TripleScorer for GraphNetwork {
    fn entity_count(&self) -> usize {
        self.graph.nodes()
    }

    fn relation_count(&self) -> usize {
        self.numbers.len()
    }

    fn score_objects(&self, questions: &[(EntityId, RelationId)], scores: &mut [f32]) -> Result<()> {
        self.fill(questions, false, scores)
    }

    fn score_subjects(&self, questions: &[(RelationId, EntityId)], scores: &mut [f32]) -> Result<()> {
        let questions: Vec<(EntityId, RelationId)> =
            questions.iter().map(|&(relation, object)| (object, relation)).collect();
        self.fill(&questions, true, scores)
    }
}
