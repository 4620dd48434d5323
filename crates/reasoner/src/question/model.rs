//! A question model: an encoder, a head over the knowledge base, and the threshold that selects answers.

use std::{collections::HashMap, path::Path};

use candle_core::{DType, Device, Tensor};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Architecture, Tokenizer};
use sporran_kilt::{
    jsonl,
    kb::{EntityId, KnowledgeBase, Part, RelationId},
    korc::Question,
};
use sporran_training::{Pick, TunedEncoder, Variables};
use sporran_transformers::{BertConfig, EncoderRow, ModelConfig};

use super::{
    Answer, Answered, Answers, QuestionInput, Reasoner,
    embed::{EmbedHead, HeadOutput},
    encoding::{EncodedQuestion, LinkedName, Linker, QuestionReader},
    normalisation::is_statistic,
    options::{Edges, Reading, Topic},
    path::heaviest,
    transfer::{Shape, Sparse, TransferHead},
};
use crate::{
    Error, Result,
    rules::{Graph, Step},
};

/// The number of tokens in an inference batch.
const BATCH_TOKENS: usize = 4096;
/// The file that describes the head, next to the encoder's files.
const FILE: &str = "reasoner.json";
const WEIGHTS: &str = "model.safetensors";
/// The largest number of entities of a question that can be answers.
const MOST: usize = 64;

/// The kinds of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum QuestionKind {
    /// Maps question and document to a vector in the space of the entity vectors.
    #[serde(rename = "embed-kgqa")]
    EmbedKgqa {
        /// Complex numbers of an entity's vector.
        rank: usize,
        /// The entity where it starts. Folders of older versions lack it.
        #[serde(default = "Topic::names", skip_serializing_if = "Topic::is_names")]
        topic: Topic,
        /// Whether it normalises vectors over batches. Folders of older versions lack it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        batch_normalisation: bool,
    },
    /// Walks over the triples, from the question's entity or those that the document names.
    #[serde(rename = "transfer-net")]
    TransferNet {
        /// The number of steps.
        steps: usize,
        /// The entity where it starts. Folders of older versions lack it.
        #[serde(default = "Topic::names", skip_serializing_if = "Topic::is_names")]
        topic: Topic,
        /// How weights move along edges. Folders of older versions lack it.
        #[serde(default = "Edges::share", skip_serializing_if = "Edges::is_share")]
        edges: Edges,
        /// How a step reads the text. Folders of older versions lack it.
        #[serde(default = "Reading::separate", skip_serializing_if = "Reading::is_separate")]
        reading: Reading,
    },
}

impl QuestionKind {
    /// The value of the key `kind` in a config.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EmbedKgqa { .. } => "embed-kgqa",
            Self::TransferNet { .. } => "transfer-net",
        }
    }

    /// The entity where it starts.
    #[must_use]
    pub fn topic(self) -> Topic {
        match self {
            Self::EmbedKgqa { topic, .. } | Self::TransferNet { topic, .. } => topic,
        }
    }

    /// Whether it has batch normalisation.
    pub(super) fn normalises_batches(self) -> bool {
        matches!(self, Self::EmbedKgqa { batch_normalisation: true, .. })
    }
}

/// The contents of that file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Description {
    model: QuestionKind,
    max_tokens: usize,
    threshold: f32,
    /// The entities in the order of the vectors; empty in a TransferNet.
    entities: Vec<String>,
    /// The relations in the order of their ids; empty in an EmbedKGQA.
    relations: Vec<String>,
}

#[derive(Debug)]
enum Head {
    Embed(EmbedHead),
    Transfer(TransferHead),
}

/// A model over one knowledge base.
#[derive(Debug)]
pub struct QuestionModel {
    kind: QuestionKind,
    encoder: TunedEncoder,
    head: Head,
    reader: QuestionReader,
    linker: Linker,
    /// The ids of entities by name, for questions with a given topic entity.
    ids: FxHashMap<String, u32>,
    graph: Graph,
    /// The model's id of each relation of the knowledge base.
    relations: Vec<Option<u32>>,
    entities: usize,
    /// Answers have at least this share of the best answer's probability.
    threshold: f32,
    max_tokens: usize,
}

/// The parts of a model.
pub struct Parts {
    /// The kind of model.
    pub kind: QuestionKind,
    /// The encoder's config, without a head.
    pub encoder: BertConfig,
    /// The encoder's tokenizer.
    pub tokenizer: Tokenizer,
    /// The largest number of tokens of question and document.
    pub max_tokens: usize,
    /// The weights. Missing tensors are initialised at random.
    pub variables: Variables,
    /// EmbedKGQA's vectors of entities.
    pub vectors: Vectors,
}

/// The source of EmbedKGQA's entity vectors, (entities, 2 rank).
pub enum Vectors {
    /// Random initial vectors, trained with the questions.
    Drawn,
    /// These initial vectors, trained with the questions.
    From(Tensor),
    /// These vectors, not trained.
    Fixed(Tensor),
}

/// The ids of a model over a knowledge base.
struct Numbering {
    /// The model's id of each relation of the knowledge base.
    relations: Vec<Option<u32>>,
    /// The number of the model's relations.
    count: usize,
    /// The entities without a vector, ascending. They are neither answers nor topic entities.
    absent: Vec<u32>,
}

/// Checks that an encoder has no more layers than tensors, and the shapes of these, before anything is made of its settings.
fn fits(
    encoder: &BertConfig,
    tensors: &HashMap<String, Tensor>,
    config: &Path,
    weights: &Path,
) -> Result<()> {
    encoder.check_layers(tensors.len()).map_err(|error| error.within(config))?;
    let most: usize = tensors.values().map(Tensor::elem_count).sum();
    for parameter in encoder.parameters()? {
        let fits = match tensors.get(&parameter.name) {
            Some(tensor) => tensor.shape() == &parameter.shape,
            None => parameter.shape.elem_count() <= most,
        };
        if !fits {
            let found = tensors.get(&parameter.name).map(|tensor| tensor.shape().clone());
            let message = format!(
                "tensor `{}`: expected shape {:?} by config.json, found {}",
                parameter.name,
                parameter.shape,
                found.map_or_else(|| "none".to_owned(), |shape| format!("{shape:?}"))
            );
            return Err(Error::model(weights, message));
        }
    }
    Ok(())
}

impl QuestionModel {
    /// A model over the training part of a knowledge base, with its ids.
    ///
    /// # Errors
    /// [`Error::Argument`] for no steps, and for a TransferNet with [`Topic::Text`]; errors of the encoder.
    pub fn new(parts: Parts, kb: &KnowledgeBase) -> Result<Self> {
        let relations = (0..kb.relation_count() as u32).map(Some).collect();
        let numbering = Numbering { relations, count: kb.relation_count(), absent: Vec::new() };
        Self::over(parts, kb, numbering)
    }

    fn over(parts: Parts, kb: &KnowledgeBase, numbering: Numbering) -> Result<Self> {
        let Numbering { relations, count, absent } = numbering;
        let Parts { kind, encoder, tokenizer, max_tokens, variables, vectors } = parts;
        let graph = Graph::of(kb.triples(Part::Train));
        let (entities, width) = (kb.entity_count(), encoder.hidden_size);
        // The head's variables come first, because the encoder collects all variables.
        let head = match kind {
            QuestionKind::EmbedKgqa { rank, topic, batch_normalisation } => {
                let (fixed, start) = match vectors {
                    Vectors::Drawn => (None, None),
                    Vectors::From(start) => (None, Some(start)),
                    Vectors::Fixed(fixed) => (Some(fixed), None),
                };
                let given = fixed.as_ref().or(start.as_ref());
                if let Some(rows) = given.filter(|rows| rows.dims() != [entities, 2 * rank]) {
                    let message = format!(
                        "vectors of entities: expected {entities} rows of {}, found {:?}",
                        2 * rank,
                        rows.dims()
                    );
                    return Err(Error::Argument(message));
                }
                let shape = (width, topic, batch_normalisation);
                let head = EmbedHead::new(shape, entities, rank, fixed, &absent, &variables)?;
                if let (Some(start), Some(variable)) = (start, variables.named("question.entities")) {
                    variable.set(&start)?;
                }
                Head::Embed(head)
            }
            QuestionKind::TransferNet { steps, topic, edges, reading } => {
                if steps == 0 {
                    return Err(Error::Argument("steps: expected at least 1, found 0".into()));
                }
                if topic == Topic::Text {
                    let message = "topic: expected `given` or `names` for a TransferNet, found `text`";
                    return Err(Error::Argument(message.into()));
                }
                let known =
                    graph.triples().iter().filter_map(|&(s, r, o)| Some((s, relations[r as usize]?, o)));
                let sparse = Sparse::new(&Graph::new(known), entities, &Device::Cpu)?;
                let vb = variables.builder(&Device::Cpu).pp("question");
                let shape = Shape { width, topic, edges, reading, spread: encoder.initializer_range };
                Head::Transfer(TransferHead::new(shape, count, steps, sparse, &vb)?)
            }
        };
        let encoder = TunedEncoder::new(&encoder, variables, &Device::Cpu)?;
        let most = encoder.config().max_input_length().min(max_tokens);
        let ids = if kind.topic() == Topic::Given {
            let has_vector = |at: &u32| absent.binary_search(at).is_err();
            let known = (0..entities as u32).filter(has_vector);
            known.map(|at| (kb.entity_name(EntityId(at)).to_owned(), at)).collect()
        } else {
            FxHashMap::default()
        };
        Ok(Self {
            kind,
            encoder,
            head,
            reader: QuestionReader::new(tokenizer, most)?,
            linker: Linker::new(kb),
            ids,
            graph,
            relations,
            entities,
            threshold: 0.5,
            max_tokens,
        })
    }

    /// The kind of model.
    #[must_use]
    pub fn kind(&self) -> QuestionKind {
        self.kind
    }

    /// Loads a folder that [`save`](Self::save) wrote, over a knowledge base that may number its entities
    /// differently. EmbedKGQA never answers with an entity that it has no vector for.
    ///
    /// # Errors
    /// Read errors; a missing tensor, or one of another shape.
    pub fn load(folder: &Path, kb: &KnowledgeBase) -> Result<Self> {
        let description: Description = jsonl::read_json(folder.join(FILE))?;
        let config_path = folder.join("config.json");
        let encoder = match ModelConfig::from_json(&config_path, &jsonl::read_to_string(&config_path)?)? {
            ModelConfig::Bert(config) => config,
            other => {
                let message =
                    format!("{}: expected an encoder, found `{}`", config_path.display(), other.model_type());
                return Err(Error::Argument(message));
            }
        };
        let mut tensors: HashMap<String, Tensor> = HashMap::new();
        let path = folder.join(WEIGHTS);
        if !path.is_file() {
            return Err(Error::Argument(format!("{}: no such file", path.display())));
        }
        let stored = sporran_checkpoint::tensors_of(folder, WEIGHTS, DType::F32, &Device::Cpu)?;
        tensors.extend(stored);
        fits(&encoder, &tensors, &config_path, &path)?;
        if let QuestionKind::TransferNet { steps, .. } = description.model
            && steps > tensors.len()
        {
            let message = format!(
                "`steps`: expected at most one for each of the {} tensors, found {steps}",
                tensors.len()
            );
            return Err(Error::model(&folder.join(FILE), message));
        }
        let mut absent = Vec::new();
        let vectors = match (description.model, tensors.remove("question.entities")) {
            (QuestionKind::EmbedKgqa { rank, .. }, Some(rows)) => {
                if rows.dims() != [description.entities.len(), 2 * rank] {
                    let message = format!(
                        "{}: `question.entities` does not have the shape given in reasoner.json",
                        path.display()
                    );
                    return Err(Error::Argument(message));
                }
                let places: HashMap<&str, usize> =
                    description.entities.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
                let rows: Vec<Vec<f32>> = rows.to_vec2()?;
                let mut of = |entity: u32| match places.get(kb.entity_name(EntityId(entity))) {
                    Some(&at) => rows[at].clone(),
                    None => {
                        absent.push(entity);
                        vec![0.0; 2 * rank]
                    }
                };
                let all: Vec<f32> = (0..kb.entity_count() as u32).flat_map(&mut of).collect();
                Vectors::Fixed(Tensor::from_vec(all, (kb.entity_count(), 2 * rank), &Device::Cpu)?)
            }
            (QuestionKind::EmbedKgqa { .. }, None) => {
                return Err(Error::Argument(format!(
                    "{}: expected a tensor `question.entities`",
                    path.display()
                )));
            }
            (QuestionKind::TransferNet { .. }, _) => Vectors::Drawn,
        };
        let known: HashMap<&str, u32> =
            description.relations.iter().zip(0..).map(|(name, at)| (name.as_str(), at)).collect();
        let relations = (0..kb.relation_count() as u32)
            .map(|relation| known.get(kb.relation_name(RelationId(relation))).copied())
            .collect();
        let names: Vec<String> = tensors.keys().cloned().collect();
        let variables = Variables::with_initial(0, tensors);
        let parts = Parts {
            kind: description.model,
            encoder,
            tokenizer: Tokenizer::from_folder(folder)?,
            max_tokens: description.max_tokens,
            variables: variables.clone(),
            vectors,
        };
        let numbering = Numbering { relations, count: description.relations.len(), absent };
        // Only the stored tensors can have other shapes than the model here.
        let mut model = Self::over(parts, kb, numbering).map_err(|error| match error {
            Error::Tensor(source) | Error::Transformers(sporran_checkpoint::Error::Tensor(source)) => {
                Error::model(&path, source.to_string())
            }
            other => other,
        })?;
        if let Some((missing, _)) = variables.all().iter().find(|(name, _)| !names.contains(name)) {
            return Err(Error::Argument(format!("{}: expected a tensor `{missing}`", path.display())));
        }
        model.threshold = description.threshold;
        Ok(model)
    }

    /// Writes a folder with 16-bit weights, tokenizer and description. `weights` are those of a snapshot.
    ///
    /// # Errors
    /// Write errors; a tensor that cannot be read.
    pub fn save(&self, folder: &Path, kb: &KnowledgeBase, card: &str) -> Result<()> {
        let mut tensors: HashMap<String, Tensor> = HashMap::new();
        for (name, var) in self.encoder.variables().all() {
            let dtype = if is_statistic(&name) { DType::F32 } else { DType::F16 };
            tensors.insert(name, var.as_tensor().to_dtype(dtype)?);
        }
        if let Head::Embed(head) = &self.head {
            tensors.insert("question.entities".into(), head.entities().to_dtype(DType::F16)?);
        }
        let is_embed = matches!(self.head, Head::Embed(_));
        let names = |count: usize, name: &dyn Fn(u32) -> String| (0..count as u32).map(name).collect();
        let description = Description {
            model: self.kind,
            max_tokens: self.max_tokens,
            threshold: self.threshold,
            entities: names(if is_embed { self.entities } else { 0 }, &|at| {
                kb.entity_name(EntityId(at)).to_owned()
            }),
            relations: names(if is_embed { 0 } else { self.relations.len() }, &|at| {
                kb.relation_name(RelationId(at)).to_owned()
            }),
        };
        let config = ModelConfig::Bert(self.encoder.config().clone()).to_json();
        let json =
            |value: serde_json::Result<Vec<u8>>| value.map_err(|error| Error::Argument(error.to_string()));
        jsonl::write(folder.join("tokenizer.json"), self.reader.tokenizer().json().as_bytes())?;
        jsonl::write(folder.join("model.toml"), card.as_bytes())?;
        jsonl::write(folder.join("config.json"), &json(serde_json::to_vec_pretty(&config))?)?;
        jsonl::write(folder.join(FILE), &json(serde_json::to_vec(&description))?)?;
        let (path, part) = (folder.join(WEIGHTS), folder.join(format!(".{WEIGHTS}.part")));
        candle_core::safetensors::save(&tensors, &part)?;
        std::fs::rename(&part, &path).map_err(|source| sporran_kilt::Error::io(&path, "rename", source))?;
        Ok(())
    }

    /// Loads the weights of a training snapshot.
    ///
    /// # Errors
    /// A missing tensor, or one of another shape.
    pub fn restore(&self, snapshot: &Path) -> Result<()> {
        let path = snapshot.join(WEIGHTS);
        let tensors = candle_core::safetensors::load(&path, &Device::Cpu)?;
        for (name, var) in self.encoder.variables().all() {
            let Some(tensor) = tensors.get(&name) else {
                return Err(Error::Argument(format!("{}: expected a tensor `{name}`", path.display())));
            };
            var.set(tensor)?;
        }
        Ok(())
    }

    /// The encoder and all trained variables.
    pub fn encoder(&self) -> &TunedEncoder {
        &self.encoder
    }

    /// The number of entities.
    pub fn entity_count(&self) -> usize {
        self.entities
    }

    /// The smallest share of the best answer's probability that other answers need.
    pub fn threshold(&self) -> f32 {
        self.threshold
    }

    /// Sets the smallest share of the best answer's probability that other answers need.
    pub fn set_threshold(&mut self, threshold: f32) {
        self.threshold = threshold;
    }

    /// Reads a question with its document.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    pub fn read(&self, input: &QuestionInput<'_>) -> Result<EncodedQuestion> {
        let read = self.reader.read(input, &self.linker)?;
        let topic = input.topics.iter().find_map(|id| self.ids.get(id).copied());
        Ok(EncodedQuestion { topic, ..read })
    }

    /// Whether the loss is the squared error, because the scores of entities are no distribution.
    pub(super) fn is_squared(&self) -> bool {
        matches!(self.kind, QuestionKind::TransferNet { edges: Edges::Sum, .. })
    }

    /// Whether a question has no topic entity that the model needs. Then it has no answer.
    pub(super) fn lacks_topic(&self, input: &EncodedQuestion) -> bool {
        self.kind.topic() == Topic::Given && input.topic.is_none()
    }

    /// EmbedKGQA's vectors of entities (entities, 2 rank), if they are trained.
    pub(super) fn trained_entities(&self) -> Option<&Tensor> {
        match &self.head {
            Head::Embed(head) => Some(head.entities()).filter(|entities| entities.is_variable()),
            Head::Transfer(_) => None,
        }
    }

    /// Applies the head to the hidden states (tokens, d) of inputs.
    pub(super) fn forward(
        &self,
        states: &Tensor,
        inputs: &[&EncodedQuestion],
        is_training: bool,
    ) -> Result<HeadOutput> {
        match &self.head {
            Head::Embed(head) => head.forward(states, inputs, is_training),
            Head::Transfer(head) => head.forward(states, inputs),
        }
    }

    /// The possible answers of each input with their probabilities, most probable first, at most 64.
    /// Entities that the document names are excluded, because a chain ends outside of the document, and so is a given topic
    /// entity.
    ///
    /// # Errors
    /// A tensor error.
    pub fn likely(&self, inputs: &[EncodedQuestion]) -> Result<Vec<Vec<(u32, f32)>>> {
        Ok(self.explained(inputs)?.into_iter().map(|found| found.likely).collect())
    }

    fn explained(&self, inputs: &[EncodedQuestion]) -> Result<Vec<Explained>> {
        let mut all = Vec::with_capacity(inputs.len());
        let mut at = 0;
        while at < inputs.len() {
            let mut end = at;
            let mut tokens = 0;
            while end < inputs.len() && (end == at || tokens + inputs[end].row.ids.len() <= BATCH_TOKENS) {
                tokens += inputs[end].row.ids.len();
                end += 1;
            }
            let batch: Vec<&EncodedQuestion> = inputs[at..end].iter().collect();
            let rows: Vec<&EncoderRow> = batch.iter().map(|input| &input.row).collect();
            let found = self.forward(&self.encoder.states(&rows, Pick::All)?, &batch, false)?;
            let steps: Vec<Vec<Vec<f32>>> =
                found.steps.iter().map(Tensor::to_vec2).collect::<Result<_, _>>()?;
            let (likely, bridges) = (found.likely.to_vec2::<f32>()?, found.bridges.to_vec2::<f32>()?);
            for (row, (input, (likely, bridges))) in
                batch.iter().zip(likely.into_iter().zip(bridges)).enumerate()
            {
                let is_named = |entity: u32| {
                    input.topic == Some(entity) || input.named.iter().any(|(_, name)| name.entity == entity)
                };
                let mut ranked: Vec<(u32, f32)> =
                    (0..).zip(likely).filter(|&(entity, likely)| likely > 0.0 && !is_named(entity)).collect();
                if self.lacks_topic(input) {
                    ranked.clear();
                }
                ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
                ranked.truncate(MOST);
                let named = input.named.iter().map(|(_, name)| *name).zip(bridges).collect();
                let steps = steps.iter().map(|step| step[row].clone()).collect();
                all.push(Explained { likely: ranked, named, steps, topic: input.topic });
            }
            at = end;
        }
        Ok(all)
    }

    /// The weight of a knowledge-base step at step `at` of a walk.
    fn weight(&self, steps: &[Vec<f32>], at: usize, step: Step) -> f32 {
        if steps.is_empty() {
            return 1.0;
        }
        let relation = self.relations.get(step.relation() as usize).copied().flatten();
        let place = relation.map(|relation| 2 * relation as usize + usize::from(step.is_backward()));
        place.and_then(|place| steps.get(at)?.get(place).copied()).unwrap_or_default()
    }

    /// The number that step `at` of a walk, from a node along a relation, divides the relation's weight by.
    fn parts(&self, steps: &[Vec<f32>], at: usize, node: u32, step: Step) -> f32 {
        match self.kind {
            QuestionKind::TransferNet { edges: Edges::Sum, .. } => 1.0,
            QuestionKind::TransferNet { edges: Edges::Attention, .. } => {
                let edges = self.graph.edges(node).iter();
                edges.map(|edge| self.weight(steps, at, edge.step)).sum::<f32>().max(f32::MIN_POSITIVE)
            }
            _ => self.graph.along(node, step).len().max(1) as f32,
        }
    }

    /// The answers to questions, with the attention of the model.
    ///
    /// # Errors
    /// A tokenizer or tensor error.
    pub fn answers(&self, questions: &[QuestionInput<'_>], most: usize) -> Result<Vec<Answered>> {
        let inputs: Vec<EncodedQuestion> =
            questions.iter().map(|question| self.read(question)).collect::<Result<_>>()?;
        let walked = match self.kind {
            QuestionKind::EmbedKgqa { .. } => 2,
            QuestionKind::TransferNet { steps, .. } => steps,
        };
        let answered = |found: Explained| {
            // A given topic entity is not in the document.
            let topic = found.topic.map(|entity| (LinkedName { start: 0, end: 0, entity }, 1.0));
            let starts = topic.map_or_else(|| found.named.clone(), |topic| vec![topic]);
            let answers = chosen(&found.likely, self.threshold, most)
                .iter()
                .map(|&(entity, confidence)| {
                    let weight = |at: usize, step: Step| self.weight(&found.steps, at, step);
                    let parts = |at: usize, node: u32, step: Step| self.parts(&found.steps, at, node, step);
                    let walk = heaviest(&self.graph, &starts, entity, walked, weight, parts);
                    let (bridge, triples) = match walk {
                        Some((bridge, triples)) => (found.topic.is_none().then_some(bridge), triples),
                        None => (None, Vec::new()),
                    };
                    Answer { entity: EntityId(entity), confidence, bridge, triples }
                })
                .collect();
            let steps = found.steps.iter().map(|step| self.top_relations(step)).collect();
            Answered { answers, named: found.named, steps }
        };
        Ok(self.explained(&inputs)?.into_iter().map(answered).collect())
    }

    /// The three relations with the largest weights at a step.
    fn top_relations(&self, weights: &[f32]) -> Vec<(Step, f32)> {
        let mut known: Vec<(Step, f32)> = (0u32..)
            .zip(&self.relations)
            .filter_map(|(relation, &own)| Some((relation, own? as usize)))
            .flat_map(|(relation, own)| {
                [
                    (Step::forward(relation), weights[2 * own]),
                    (Step::backward(relation), weights[2 * own + 1]),
                ]
            })
            .collect();
        known.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        known.truncate(3);
        known
    }
}

struct Explained {
    likely: Vec<(u32, f32)>,
    named: Vec<(LinkedName, f32)>,
    steps: Vec<Vec<f32>>,
    topic: Option<u32>,
}

/// The first of `likely`, and others with at least `threshold` times its probability; at most `most`.
pub fn chosen(likely: &[(u32, f32)], threshold: f32, most: usize) -> &[(u32, f32)] {
    let Some(&(_, best)) = likely.first() else { return likely };
    let count = likely.iter().take_while(|(_, value)| *value >= threshold * best).count();
    &likely[..count.min(most)]
}

impl Reasoner for QuestionModel {
    fn answer(&self, questions: &[Question], most: usize) -> Result<Vec<Answers>> {
        let inputs: Vec<QuestionInput<'_>> = questions.iter().map(QuestionInput::of).collect();
        Ok(self.answers(&inputs, most)?.into_iter().map(Answers::Entities).collect())
    }
}
