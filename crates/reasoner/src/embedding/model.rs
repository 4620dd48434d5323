//! A trained embedding in a folder.

use std::{collections::BTreeMap, ops::Range, path::Path};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sporran_kernels::{Comparison, Isa, TrainingPrecision};
use sporran_kilt::{
    jsonl,
    kb::{EntityId, KnowledgeBase, Names, RelationId},
};

use super::{
    euclidean,
    file::{self, Data},
    interaction,
    options::{EmbeddingOptions, Storage},
    parameters::{Parameters, Shape, Tensor},
    questions::Question,
    scorer::{self, TripleScorer},
};
use crate::{
    Error, Result,
    product::{View, shared_product_in},
};

/// The file that describes the model, and those of values and names.
const ABOUT: &str = "embedding.json";
const VALUES: &str = "embedding.safetensors";
const ENTITIES: &str = "entities.txt";
const RELATIONS: &str = "relations.txt";
/// The number of entities decoded at once.
const BLOCK: usize = 4096;

/// The contents of `embedding.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    entities: usize,
    relations: usize,
    /// How the model was trained; only the options that decide its shape are read.
    embedding: EmbeddingOptions,
}

/// Vectors of a knowledge base's entities and relations, with their names.
///
/// When opened from a folder, the entity vectors stay memory-mapped, in 32 or 16 bits.
#[derive(Clone, Debug)]
pub struct EmbeddingModel {
    pub(super) options: EmbeddingOptions,
    pub(super) shape: Shape,
    pub(super) parameters: Parameters,
    entities: Names,
    relations: Names,
}

impl EmbeddingModel {
    /// An untrained model with values sampled by `seed`.
    ///
    /// # Errors
    /// [`Error::Options`].
    pub(super) fn new(kb: &KnowledgeBase, options: &EmbeddingOptions, seed: u64) -> Result<Self> {
        options.check()?;
        let shape = Shape::new(options, kb.entity_count(), kb.relation_count());
        let parameters = Parameters::new(&shape, options, seed);
        let (entities, relations) = (kb.entities().ids().clone(), kb.relations().ids().clone());
        Ok(Self { options: options.clone(), shape, parameters, entities, relations })
    }

    /// Opens a folder that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// Read errors; [`Error::Model`] if the files do not belong together.
    pub fn open(folder: &Path) -> Result<Self> {
        let about: About = jsonl::read_json(folder.join(ABOUT))?;
        about.embedding.check()?;
        let shape = Shape::new(&about.embedding, about.entities, about.relations);
        let path = folder.join(VALUES);
        let mapped = file::Mapped::open(&path)?;
        let entities = mapped.table("entities", [shape.entities, shape.width()])?;
        let tensors = shape
            .tensors()
            .into_iter()
            .map(|(name, shape, trained)| {
                Ok(Tensor { name, shape, values: mapped.values(name, shape)?, trained })
            })
            .collect::<Result<Vec<_>>>()?;
        let names = |file: &str, expected: usize| {
            let path = folder.join(file);
            let mut names = Names::default();
            for line in jsonl::open(&path)?.lines() {
                names.intern(&line?.1);
            }
            if names.len() != expected {
                let message = format!("expected {expected} different names, found {}", names.len());
                return Err(Error::model(&path, message));
            }
            Ok(names)
        };
        Ok(Self {
            entities: names(ENTITIES, about.entities)?,
            relations: names(RELATIONS, about.relations)?,
            options: about.embedding,
            shape,
            parameters: Parameters { entities, tensors },
        })
    }

    /// Writes the model into a folder: options, values (the entities' in `storage`), and the names of
    /// entities and relations, one a line. Each file is written atomically, the values last.
    ///
    /// # Errors
    /// Write errors; [`Error::Storage`] for a memory-mapped model.
    pub fn save(&self, folder: &Path, storage: Storage) -> Result<()> {
        let shape = &self.shape;
        let about = About {
            entities: shape.entities,
            relations: shape.directions.relations,
            embedding: self.options.clone(),
        };
        let mut json = serde_json::to_vec_pretty(&about)
            .map_err(|error| Error::model(&folder.join(ABOUT), error.to_string()))?;
        json.push(b'\n');
        jsonl::write(folder.join(ABOUT), &json)?;
        for (file, names) in [(ENTITIES, &self.entities), (RELATIONS, &self.relations)] {
            let mut writer = jsonl::Writer::create(folder.join(file))?;
            for name in names.iter() {
                writer.line(name.as_bytes())?;
            }
            writer.finish()?;
        }
        let tensors = self.tensors(storage == Storage::F16)?;
        file::write(&folder.join(VALUES), &BTreeMap::new(), &tensors)
    }

    /// All values for writing.
    pub(super) fn tensors(&self, half: bool) -> Result<Vec<(String, Vec<usize>, Data<'_>)>> {
        let Parameters { entities, tensors } = &self.parameters;
        let expected = "entities in memory";
        let data = Data::of(entities.rows(), half).ok_or(Error::Storage { expected })?;
        let mut all = vec![("entities".to_owned(), vec![entities.count(), entities.width()], data)];
        let shape = |tensor: &Tensor| tensor.shape.to_vec();
        all.extend(tensors.iter().map(|t| (t.name.to_owned(), shape(t), Data::F32(&t.values))));
        Ok(all)
    }

    /// The options of the model.
    #[must_use]
    pub fn options(&self) -> &EmbeddingOptions {
        &self.options
    }

    /// The entities' names.
    #[must_use]
    pub fn entities(&self) -> &Names {
        &self.entities
    }

    /// The relations' names.
    #[must_use]
    pub fn relations(&self) -> &Names {
        &self.relations
    }

    /// Checks that a knowledge base has the same entities and relations with the same ids.
    ///
    /// # Errors
    /// [`Error::Argument`] with the first difference.
    pub fn check(&self, kb: &KnowledgeBase) -> Result<()> {
        let pairs = [
            ("entity", &self.entities, kb.entities().ids()),
            ("relation", &self.relations, kb.relations().ids()),
        ];
        for (what, own, other) in pairs {
            for at in 0..own.len().max(other.len()) {
                if own.name(at) != other.name(at) {
                    let name = |names: &Names| names.name(at).unwrap_or("nothing").to_owned();
                    return Err(Error::Argument(format!(
                        "expected the knowledge base that the model was trained on: {what} {at} is `{}` there and `{}` here",
                        name(own),
                        name(other)
                    )));
                }
            }
        }
        Ok(())
    }

    /// The length of an entity vector, which is also that of a question vector. ConvE's ends with a bias.
    #[must_use]
    pub fn width(&self) -> usize {
        self.shape.width()
    }

    /// Writes an entity's vector.
    ///
    /// # Panics
    /// If `out` does not have length [`width`](Self::width) or the id is too large.
    pub fn vector(&self, entity: EntityId, out: &mut [f32]) {
        assert_eq!(out.len(), self.width());
        self.parameters.entities.read(entity.index(), out);
    }

    /// The entity vectors in the order of a knowledge base, row by row. Entities without a vector get zeros.
    #[must_use]
    pub fn vectors_for(&self, kb: &KnowledgeBase) -> Vec<f32> {
        let mut rows = vec![0.0; kb.entity_count() * self.width()];
        for (row, name) in rows.chunks_exact_mut(self.width()).zip(kb.entities().ids().iter()) {
            if let Some(at) = self.entities.number(name) {
                self.parameters.entities.read(at as usize, row);
            }
        }
        rows
    }

    /// The vectors of questions for objects, row by row, as input of [`score_vectors`](Self::score_vectors).
    ///
    /// # Errors
    /// [`Error::Argument`] for an id that is too large.
    pub fn question_vectors(&self, questions: &[(EntityId, RelationId)]) -> Result<Vec<f32>> {
        scorer::check(questions.iter().copied(), (self.entity_count(), self.relation_count()), None)?;
        Ok(self.vectors(questions.iter().copied(), false))
    }

    /// Scores all entities against given question vectors: one row of scores a vector.
    ///
    /// # Panics
    /// If the sizes do not match.
    pub fn score_vectors(&self, vectors: &[f32], scores: &mut [f32]) {
        let (width, count) = (self.width(), self.shape.entities);
        assert_eq!(vectors.len() / width * count, scores.len());
        let mut scratch = Vec::new();
        let block = if self.parameters.entities.values().is_some() { count } else { BLOCK };
        for first in (0..count).step_by(block.max(1)) {
            let which = first..(first + block).min(count);
            let table = self.parameters.entities.block(which.clone(), &mut scratch);
            self.score_block(vectors, table, which, scores);
        }
    }

    /// Scores some entities, whose rows are `table`, into their columns.
    fn score_block(&self, vectors: &[f32], table: &[f32], which: Range<usize>, scores: &mut [f32]) {
        let (width, count) = (self.width(), self.shape.entities);
        let comparison = self.shape.comparison();
        if let Comparison::Dot | Comparison::L2 = comparison {
            let questions = vectors.len() / width;
            let out = (&mut scores[which.start..], View::rows(0, questions, which.len(), count));
            let right = (table, View::packed(which.len(), width).transposed());
            let left = (vectors, View::packed(questions, width));
            shared_product_in(TrainingPrecision::F32, out, left, right, false);
            if comparison == Comparison::L2 {
                euclidean::exact_scores(scores, (which, count), vectors, table, width);
            }
            return;
        }
        let rows = scores.par_chunks_exact_mut(count).zip(vectors.par_chunks_exact(width));
        rows.for_each(|(row, query)| {
            comparison.scores(Isa::detected(), query, table, &mut row[which.clone()]);
        });
    }

    fn vectors(&self, questions: impl Iterator<Item = (EntityId, RelationId)>, subjects: bool) -> Vec<f32> {
        let directions = self.shape.directions;
        let questions: Vec<Question> =
            questions.map(|(entity, relation)| directions.question(entity, relation.0, subjects)).collect();
        interaction::forward(&self.shape, &self.parameters, &questions, None, interaction::Memory::default())
            .0
    }
}

impl TripleScorer for EmbeddingModel {
    fn entity_count(&self) -> usize {
        self.shape.entities
    }

    fn relation_count(&self) -> usize {
        self.shape.directions.relations
    }

    fn score_objects(&self, questions: &[(EntityId, RelationId)], scores: &mut [f32]) -> Result<()> {
        let counts = (self.entity_count(), self.relation_count());
        scorer::check(questions.iter().copied(), counts, Some((questions.len(), scores.len())))?;
        self.score_vectors(&self.vectors(questions.iter().copied(), false), scores);
        Ok(())
    }

    fn score_subjects(&self, questions: &[(RelationId, EntityId)], scores: &mut [f32]) -> Result<()> {
        let counts = (self.entity_count(), self.relation_count());
        let turned = || questions.iter().map(|(relation, entity)| (*entity, *relation));
        scorer::check(turned(), counts, Some((questions.len(), scores.len())))?;
        self.score_vectors(&self.vectors(turned(), true), scores);
        Ok(())
    }
}
