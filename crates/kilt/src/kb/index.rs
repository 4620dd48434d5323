//! Look-ups over triples.

use super::{EntityId, RelationId, Triple};

/// The objects of a subject and a relation, and the subjects of a relation and an object: two sorted tables.
/// Duplicates are stored once.
#[derive(Clone, Debug, Default)]
pub struct TripleIndex {
    objects: Table,
    subjects: Table,
}

/// Values by key, both ascending: values of key `i` are `values[starts[i]..starts[i + 1]]`.
#[derive(Clone, Debug, Default)]
struct Table {
    keys: Vec<u64>,
    starts: Vec<usize>,
    values: Vec<EntityId>,
}

fn key(entity: EntityId, relation: RelationId) -> u64 {
    u64::from(entity.0) << 32 | u64::from(relation.0)
}

fn parts(key: u64) -> (EntityId, RelationId) {
    (EntityId((key >> 32) as u32), RelationId(key as u32))
}

impl Table {
    fn new(mut rows: Vec<(u64, EntityId)>) -> Self {
        rows.sort_unstable();
        rows.dedup();
        let mut table = Self { values: Vec::with_capacity(rows.len()), ..Self::default() };
        for (key, value) in rows {
            if table.keys.last() != Some(&key) {
                table.keys.push(key);
                table.starts.push(table.values.len());
            }
            table.values.push(value);
        }
        table.starts.push(table.values.len());
        table
    }

    fn values(&self, key: u64) -> &[EntityId] {
        self.keys.binary_search(&key).map_or(&[], |at| self.at(at))
    }

    fn at(&self, at: usize) -> &[EntityId] {
        &self.values[self.starts[at]..self.starts[at + 1]]
    }

    fn iter(&self) -> impl Iterator<Item = ((EntityId, RelationId), &[EntityId])> {
        self.keys.iter().enumerate().map(|(at, &key)| (parts(key), self.at(at)))
    }
}

impl TripleIndex {
    /// Indexes triples in any order.
    pub fn new<'t>(triples: impl IntoIterator<Item = &'t Triple>) -> Self {
        let (objects, subjects) = triples
            .into_iter()
            .map(|triple| {
                let Triple { subject, relation, object } = *triple;
                ((key(subject, relation), object), (key(object, relation), subject))
            })
            .unzip();
        Self { objects: Table::new(objects), subjects: Table::new(subjects) }
    }

    /// The number of distinct triples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.values.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.values.is_empty()
    }

    /// The objects of `subject` and `relation`, ascending.
    #[must_use]
    pub fn objects(&self, subject: EntityId, relation: RelationId) -> &[EntityId] {
        self.objects.values(key(subject, relation))
    }

    /// The subjects of `relation` and `object`, ascending.
    #[must_use]
    pub fn subjects(&self, relation: RelationId, object: EntityId) -> &[EntityId] {
        self.subjects.values(key(object, relation))
    }

    /// Whether the index contains a triple.
    #[must_use]
    pub fn contains(&self, triple: Triple) -> bool {
        self.objects(triple.subject, triple.relation).binary_search(&triple.object).is_ok()
    }

    /// Every subject and relation with its objects, ascending by subject, then relation.
    pub fn by_subject(&self) -> impl Iterator<Item = ((EntityId, RelationId), &[EntityId])> {
        self.objects.iter()
    }

    /// Every object and relation with its subjects, ascending by object, then relation.
    pub fn by_object(&self) -> impl Iterator<Item = ((EntityId, RelationId), &[EntityId])> {
        self.subjects.iter()
    }

    /// The relations of `subject` with their objects, ascending.
    pub fn relations_of(&self, subject: EntityId) -> impl Iterator<Item = (RelationId, &[EntityId])> {
        Self::of(&self.objects, subject)
    }

    /// The relations of `object` with their subjects, ascending.
    pub fn relations_to(&self, object: EntityId) -> impl Iterator<Item = (RelationId, &[EntityId])> {
        Self::of(&self.subjects, object)
    }

    fn of(table: &Table, entity: EntityId) -> impl Iterator<Item = (RelationId, &[EntityId])> {
        let start = table.keys.partition_point(|&at| at < key(entity, RelationId(0)));
        let rest = table.keys[start..].iter().enumerate();
        rest.map(move |(at, &key)| (parts(key), start + at))
            .take_while(move |((of, _), _)| *of == entity)
            .map(|((_, relation), at)| (relation, table.at(at)))
    }

    /// Every triple once, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Triple> {
        self.by_subject().flat_map(|((subject, relation), objects)| {
            objects.iter().map(move |&object| Triple { subject, relation, object })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_agree_with_a_scan_of_all_triples() {
        // Small numbers, so that many pairs have several values, and one triple is repeated.
        let mut triples: Vec<Triple> =
            (0..200u32).map(|at| Triple::new(at * 7 % 11, at * 5 % 3, at * 13 % 17)).collect();
        triples.push(triples[0]);
        let index = TripleIndex::new(&triples);
        for entity in 0..18 {
            for relation in 0..4 {
                let (entity, relation) = (EntityId(entity), RelationId(relation));
                let mut objects: Vec<EntityId> = triples
                    .iter()
                    .filter(|t| t.subject == entity && t.relation == relation)
                    .map(|t| t.object)
                    .collect();
                objects.sort_unstable();
                objects.dedup();
                assert_eq!(index.objects(entity, relation), objects);
                let mut subjects: Vec<EntityId> = triples
                    .iter()
                    .filter(|t| t.object == entity && t.relation == relation)
                    .map(|t| t.subject)
                    .collect();
                subjects.sort_unstable();
                subjects.dedup();
                assert_eq!(index.subjects(relation, entity), subjects);
            }
            let of: Vec<_> = index.relations_of(EntityId(entity)).collect();
            let expected: Vec<_> = (0..4)
                .map(|relation| (RelationId(relation), index.objects(EntityId(entity), RelationId(relation))))
                .filter(|(_, objects)| !objects.is_empty())
                .collect();
            assert_eq!(of, expected);
        }
        triples.sort_unstable();
        triples.dedup();
        assert_eq!(index.iter().collect::<Vec<_>>(), triples);
        assert_eq!(index.len(), triples.len());
        assert!(index.contains(triples[5]) && !index.contains(Triple::new(99, 0, 0)));
    }
}
