//! Reading and writing folders and files of triples, and tables of names.

use std::path::{Path, PathBuf};

use super::{EntityId, KnowledgeBase, LabelledIds, Part, RelationId, Triple, labels::read_names};
use crate::{Error, Result, jsonl};

/// The file name prefixes of Wikidata5M (Wang et al., 2021), the second for its inductive setting.
const WIKIDATA5M: [&str; 2] = ["wikidata5m_transductive_", "wikidata5m_inductive_"];

/// The file in `folder` with that name and any known ending.
fn find(folder: &Path, name: &str, kinds: &[&str]) -> Option<PathBuf> {
    let endings = ["", ".gz", ".zst"];
    kinds
        .iter()
        .flat_map(|kind| endings.map(|ending| folder.join(format!("{name}.{kind}{ending}"))))
        .find(|path| path.is_file())
}

/// The words by which a first line names the columns of subjects, relations and objects.
const NAMED: [&[&str]; 3] = [
    &["subject", "head", "source", "h", "s", "from", "node1", "subject_id", "head_id", "entity1"],
    &["relation", "predicate", "r", "p", "rel", "edge", "relationship", "property", "label", "relation_id"],
    &["object", "tail", "target", "t", "o", "to", "node2", "object_id", "tail_id", "entity2"],
];

/// The columns of a file of triples.
struct Columns {
    /// Those of the subject, the relation and the object.
    places: [usize; 3],
    count: usize,
    /// The column beside those three, if there is one only: it may have labels.
    label: Option<usize>,
}

impl Columns {
    /// The columns of a file with this first line.
    fn of(first: &[&str]) -> Self {
        let places = Self::named(first).unwrap_or([0, 1, 2]);
        let label = (first.len() == 4).then(|| (0..4).find(|place| !places.contains(place))).flatten();
        Self { places, count: first.len(), label }
    }

    /// The places of the three columns in a line that names them.
    fn named(cells: &[&str]) -> Option<[usize; 3]> {
        let place = |names: &[&str]| {
            cells.iter().position(|cell| names.iter().any(|name| cell.eq_ignore_ascii_case(name)))
        };
        Some([place(NAMED[0])?, place(NAMED[1])?, place(NAMED[2])?])
    }
}

impl KnowledgeBase {
    pub(super) fn load_folder(&mut self, folder: &Path) -> Result<()> {
        for part in Part::ALL {
            let name = part.name();
            let own = find(folder, name, &["txt", "tsv", "nt"]);
            // A single file of all triples is the training part.
            let whole = || find(folder, "triples", &["tsv", "nt"]).filter(|_| part == Part::Train);
            let file = own.or_else(whole).or_else(|| {
                WIKIDATA5M.iter().find_map(|before| find(folder, &format!("{before}{name}"), &["txt"]))
            });
            match file {
                Some(file) => self.load_file(&file, part)?,
                None if part == Part::Train => {
                    let message = "expected `train.txt` (or `.tsv`, `.nt`), `triples.tsv` (or `.nt`) or `wikidata5m_transductive_train.txt`, found none of them";
                    return Err(Error::store(folder, message));
                }
                None => {}
            }
            if part == Part::Train && self.triples(part).is_empty() {
                return Err(Error::Empty { path: folder.join("train"), what: "triple" });
            }
            if let Some(file) = find(folder, &format!("{name}_negatives"), &["txt", "tsv"]) {
                let labelled = self.triples_of(&file, |kb, triple| kb.add_negative(part, triple))?;
                labelled.into_iter().try_for_each(|(triple, _)| self.add_negative(part, triple))?;
            }
        }
        let entities = find(folder, "entities", &["tsv"])
            .or(find(folder, "wikidata5m_entity", &["txt"]))
            .or(find(folder, "entity_text", &["tsv"]));
        if let Some(file) = entities {
            self.load_labels(&file)?;
        }
        let relations = find(folder, "relations", &["tsv"]).or(find(folder, "wikidata5m_relation", &["txt"]));
        if let Some(file) = relations {
            self.load_relation_labels(&file)?;
        }
        Ok(())
    }

    /// Reads a file of triples into a part: N-Triples if its name ends in `.nt` (before `.gz` or `.zst`),
    /// otherwise tab-separated columns: a subject, a relation and an object. A first line that names these three, such as
    /// `head relation tail`, gives their places. Further columns are not read, unless there is one and it has nothing but `1`
    /// and `-1` or `0`: then triples with `-1` or `0` are hard negatives of the part. All lines have as many columns as
    /// the first.
    ///
    /// # Errors
    /// [`Error::Io`] and other read errors; [`Error::Record`] for a line that is no triple.
    pub fn load_file(&mut self, path: &Path, part: Part) -> Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let plain = name.trim_end_matches(".gz").trim_end_matches(".zst");
        if plain.ends_with(".nt") {
            self.load_ntriples(path, part)
        } else {
            for (triple, holds) in self.triples_of(path, |kb, triple| kb.add(part, triple))? {
                if holds { self.add(part, triple)? } else { self.add_negative(part, triple)? }
            }
            Ok(())
        }
    }

    /// Reads columns. Returns the triples of a file with labels, each with whether it holds; the others go to `take`.
    fn triples_of(
        &mut self,
        path: &Path,
        mut take: impl FnMut(&mut Self, Triple) -> Result<()>,
    ) -> Result<Vec<(Triple, bool)>> {
        let mut reader = jsonl::open(path)?;
        let mut columns = None;
        // The triples of a file whose fourth column is not known yet to be a label or not.
        let mut labelled: Vec<(Triple, bool)> = Vec::new();
        let mut is_label = false;
        while let Some((line, bytes)) = reader.next_line()? {
            let text = jsonl::utf8(path, line, bytes)?;
            let cells: Vec<&str> = text.split('\t').map(str::trim).collect();
            let is_first = columns.is_none();
            let Columns { places, count, label } = columns.get_or_insert_with(|| Columns::of(&cells));
            if is_first && Columns::named(&cells).is_some() {
                continue;
            }
            if cells.len() < 3 || cells.len() != *count {
                let expected = if *count > 3 {
                    format!(" ({count} columns, as on the first line)")
                } else {
                    String::new()
                };
                let message = format!(
                    "expected a subject, a relation and an object between tabs{expected}, found {} columns",
                    cells.len()
                );
                return Err(Error::record(path, line, ".", message));
            }
            let [subject, relation, object] = places.map(|at| cells[at]);
            for (field, value) in [("subject", subject), ("relation", relation), ("object", object)] {
                if value.is_empty() {
                    return Err(Error::record(path, line, field, "expected a name, found nothing"));
                }
            }
            let triple = Triple {
                subject: self.add_entity(subject)?,
                relation: self.add_relation(relation)?,
                object: self.add_entity(object)?,
            };
            match label.map(|at| cells[at]) {
                Some("1") => {
                    is_label = true;
                    labelled.push((triple, true));
                }
                Some(no @ ("-1" | "0")) => {
                    is_label |= no == "-1";
                    labelled.push((triple, false));
                }
                _ => {
                    // A column of other values has no labels, so all triples so far are triples.
                    *label = None;
                    labelled.drain(..).try_for_each(|(triple, _)| take(self, triple))?;
                    take(self, triple)?;
                }
            }
        }
        // A column of zeros alone says nothing.
        if !is_label {
            labelled.drain(..).try_for_each(|(triple, _)| take(self, triple))?;
        }
        if let Some(Columns { count: count @ 4.., .. }) = columns {
            let read = if labelled.is_empty() { "three columns are read" } else { "the fourth is a label" };
            tracing::info!(file = %path.display(), columns = count, "{read}");
        }
        Ok(labelled)
    }

    /// Reads entity names with [`read_names`]. Entities without triples are skipped.
    ///
    /// # Errors
    /// Those of [`read_names`].
    pub fn load_labels(&mut self, path: &Path) -> Result<()> {
        read_names(path, |row| {
            if let Some(id) = self.entity(row.id) {
                self.set_label(id, &row.label);
                row.aliases.iter().for_each(|alias| self.add_alias(id, alias));
            }
        })
    }

    /// Reads relation names, as [`load_labels`](Self::load_labels) does for entities.
    ///
    /// # Errors
    /// Those of [`read_names`].
    pub fn load_relation_labels(&mut self, path: &Path) -> Result<()> {
        read_names(path, |row| {
            if let Some(id) = self.relation(row.id) {
                self.set_relation_label(id, &row.label);
                row.aliases.iter().for_each(|alias| self.add_relation_alias(id, alias));
            }
        })
    }

    /// Writes a folder for [`open`](Self::open). Ids keep their numbers if every id is in a triple. Each file
    /// is written atomically.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Argument`] for a name with a tab or a line end.
    pub fn save(&self, folder: &Path) -> Result<()> {
        for part in Part::ALL {
            for (triples, ending) in [(self.triples(part), ""), (self.negatives(part), "_negatives")] {
                if triples.is_empty() {
                    continue;
                }
                let mut writer = jsonl::Writer::create(folder.join(format!("{}{ending}.txt", part.name())))?;
                for triple in triples {
                    let line = [
                        self.entity_name(triple.subject),
                        self.relation_name(triple.relation),
                        self.entity_name(triple.object),
                    ];
                    writer.line(joined(&line)?.as_bytes())?;
                }
                writer.finish()?;
            }
        }
        let entities = |at| (self.labels(EntityId(at)), self.entity_name(EntityId(at)));
        let relations = |at| (self.relation_labels(RelationId(at)), self.relation_name(RelationId(at)));
        write_labels(&folder.join("entities.tsv"), self.entities(), entities)?;
        write_labels(&folder.join("relations.tsv"), self.relations(), relations)
    }
}

fn write_labels<'n>(
    path: &Path,
    named: &LabelledIds,
    called: impl Fn(u32) -> (&'n [String], &'n str),
) -> Result<()> {
    let mut lines = Vec::new();
    for at in 0..named.ids().len() as u32 {
        let (labels, id) = called(at);
        if !labels.is_empty() {
            let columns: Vec<&str> = std::iter::once(id).chain(labels.iter().map(String::as_str)).collect();
            lines.push(joined(&columns)?);
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    let mut writer = jsonl::Writer::create(path)?;
    for line in lines {
        writer.line(line.as_bytes())?;
    }
    writer.finish()
}

fn joined(columns: &[&str]) -> Result<String> {
    match columns.iter().find(|column| column.contains(['\t', '\n', '\r'])) {
        Some(column) => {
            Err(Error::Argument(format!("expected a name without tabs and line ends, found {column:?}")))
        }
        None => Ok(columns.join("\t")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_of_columns_is_numbered_in_the_order_of_its_files() {
        let folder = folder(&[
            ("train.txt", "Q1\tP1\tQ2\nQ2\tP2\tQ1\n"),
            ("valid.txt", "Q3\tP1\tQ1\r\n"),
            ("valid_negatives.txt", "Q3\tP2\tQ2\n"),
            ("entities.tsv", "Q3\tthree\tIII\ttriple\nQ9\tnobody\n"),
            ("relations.tsv", "P2\tfollows\n"),
        ]);
        let kb = KnowledgeBase::open(folder.path()).unwrap();
        assert_eq!((kb.entity_count(), kb.relation_count()), (3, 2));
        assert_eq!(kb.triples(Part::Train), [Triple::new(0, 0, 1), Triple::new(1, 1, 0)]);
        assert_eq!(kb.triples(Part::Valid), [Triple::new(2, 0, 0)]);
        assert_eq!(kb.negatives(Part::Valid), [Triple::new(2, 1, 1)]);
        assert!(kb.triples(Part::Test).is_empty());
        assert_eq!(kb.labels(EntityId(2)), ["three", "III", "triple"]);
        assert_eq!(kb.relation_label(RelationId(1)), "follows");

        let copy = tempfile::tempdir().unwrap();
        kb.save(copy.path()).unwrap();
        let again = KnowledgeBase::open(copy.path()).unwrap();
        for part in Part::ALL {
            assert_eq!(again.triples(part), kb.triples(part));
            assert_eq!(again.negatives(part), kb.negatives(part));
        }
        assert_eq!(again.labels(EntityId(2)), kb.labels(EntityId(2)));
    }

    #[test]
    fn zeros_beside_ones_are_hard_negatives() {
        let folder = folder(&[("train.txt", "a\tr\tb\t1\na\tr\ta\t0\n")]);
        let kb = KnowledgeBase::open(folder.path()).unwrap();
        assert_eq!((kb.triples(Part::Train).len(), kb.negatives(Part::Train).len()), (1, 1));
    }

    #[test]
    fn further_columns_and_a_first_line_with_names_are_no_triples() {
        let names = |kb: &KnowledgeBase, triple: &Triple| {
            let [subject, object] = [triple.subject, triple.object].map(|id| kb.entity_name(id).to_owned());
            [subject, kb.relation_name(triple.relation).to_owned(), object].join(" ")
        };
        for (text, expected) in [
            ("a\tr\tb\t0.5\nb\tr\tc\t1\n", ["a r b", "b r c"]),
            ("a\tr\tb\t1\nb\tr\tc\t-1\nb\tr\ta\t7", ["a r b", "b r c"]),
            ("a\tr\tb\t0\nb\tr\tc\t0\n", ["a r b", "b r c"]),
            ("\u{feff}head\trelation\ttail\r\na\tr\tb\r\nb\tr\tc\r\n", ["a r b", "b r c"]),
            ("id\tObject\tSubject\tPredicate\n1\tb\ta\tr\n2\tc\tb\tr\n", ["a r b", "b r c"]),
            // A relation with such a name is a triple.
            ("a\trelation\tb\nb\tr\tc\n", ["a relation b", "b r c"]),
        ] {
            let folder = folder(&[("train.txt", text)]);
            let kb = KnowledgeBase::open(folder.path()).unwrap();
            let found: Vec<String> =
                kb.triples(Part::Train).iter().map(|triple| names(&kb, triple)).collect();
            assert_eq!(found[..2], expected, "{text}");
            assert!(kb.negatives(Part::Train).is_empty());
        }
        // WN11 and FB13 label the triples of a part.
        let folder = folder(&[
            ("train.txt", "a\tr\tb\n"),
            ("valid.txt", "a\tr\tb\t1\na\tr\ta\t-1\n"),
            ("test_negatives.txt", "b\tr\tb\t-1\n"),
        ]);
        let kb = KnowledgeBase::open(folder.path()).unwrap();
        assert_eq!(kb.triples(Part::Valid), [Triple::new(0, 0, 1)]);
        assert_eq!(kb.negatives(Part::Valid), [Triple::new(0, 0, 0)]);
        assert_eq!(kb.negatives(Part::Test), [Triple::new(1, 0, 1)]);
    }

    #[test]
    fn labels_are_read_below_a_first_line_with_names_too() {
        for text in [
            "head\trelation\ttail\tlabel\na\tr\tb\t1\na\tr\ta\t-1\n",
            "y\th\tr\tt\n1\ta\tr\tb\n-1\ta\tr\ta\n",
        ] {
            let folder = folder(&[("train.txt", text)]);
            let kb = KnowledgeBase::open(folder.path()).unwrap();
            assert_eq!(kb.triples(Part::Train), [Triple::new(0, 0, 1)], "{text}");
            assert_eq!(kb.negatives(Part::Train), [Triple::new(0, 0, 0)], "{text}");
        }
    }

    #[test]
    fn a_folder_without_parts_is_there_to_learn_from() {
        let folder = folder(&[
            ("triples.tsv", "Q2\tP1\tQ1\n"),
            ("entity_text.tsv", "id\tqid\tname\tent_type\n0\tQ1\tAnn\thuman\n"),
            ("relations.tsv", "id\tlabel\taliases\nP1\tmother\tmum|ma\n"),
        ]);
        let kb = KnowledgeBase::open(folder.path()).unwrap();
        assert_eq!(kb.triples(Part::Train), [Triple::new(0, 0, 1)]);
        assert!(kb.triples(Part::Valid).is_empty());
        assert_eq!((kb.label(EntityId(0)), kb.label(EntityId(1))), ("Q2", "Ann"));
        assert_eq!(kb.relation_labels(RelationId(0)), ["mother", "mum", "ma"]);
    }

    #[test]
    fn the_files_of_wikidata5m_are_found_by_their_names() {
        let folder = folder(&[
            ("wikidata5m_transductive_train.txt", "Q29387131\tP31\tQ5\n"),
            ("wikidata5m_transductive_test.txt", "Q5\tP31\tQ29387131\n"),
            ("wikidata5m_entity.txt", "Q5\thuman\tperson\n"),
            ("wikidata5m_relation.txt", "P31\tinstance of\tis a\n"),
        ]);
        let kb = KnowledgeBase::open(folder.path()).unwrap();
        assert_eq!(kb.triples(Part::Test), [Triple::new(1, 0, 0)]);
        assert_eq!(kb.label(EntityId(1)), "human");
        assert_eq!(kb.relation_labels(RelationId(0)), ["instance of", "is a"]);
    }

    #[test]
    fn errors_name_file_and_line() {
        let cases: [(&[(&str, &str)], &str); 6] = [
            (
                &[("train.txt", "a\tr\tb\tx\na\tr\tb\n")],
                "train.txt:2: expected a subject, a relation and an object between tabs (4 columns",
            ),
            (&[("train.txt", "Q1\tP1\tQ2\n\nQ1\tP1\n")], "train.txt:3: expected a subject"),
            (&[("train.txt", "Q1\t\tQ2\n")], "train.txt:1: field `relation`: expected a name"),
            (&[("train.txt", "\n")], "expected at least one triple"),
            (&[("valid.txt", "Q1\tP1\tQ2\n")], "expected `train.txt`"),
            (&[("train.txt", "Q1\tP1\tQ2\n"), ("entities.tsv", "Q1\n")], "entities.tsv:1: field `label`"),
        ];
        for (files, expected) in cases {
            let folder = folder(files);
            let message = KnowledgeBase::open(folder.path()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let missing = KnowledgeBase::open("no-such-file.txt").unwrap_err();
        assert!(missing.is_input(), "{missing}");
    }

    #[test]
    fn a_name_that_would_break_a_line_is_not_written() {
        let mut kb = KnowledgeBase::default();
        let (a, r) = (kb.add_entity("a\tb").unwrap(), kb.add_relation("r").unwrap());
        kb.add(Part::Train, Triple { subject: a, relation: r, object: a }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        assert!(kb.save(folder.path()).unwrap_err().to_string().contains("without tabs"));
        assert!(!folder.path().join("train.txt").exists());
    }
}
