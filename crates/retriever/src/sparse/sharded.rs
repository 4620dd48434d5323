//! Search over the indexes of consecutive parts of the passages, with the statistics of all.
//!
//! Weights use the number of all passages with a term, and norms the average length of all passages. The bounds of the parts are
//! of other norms, so they are computed again when the parts are opened. Terms are added in the order of their bounds over all
//! passages. So scores and rankings are those of one index over all passages, bit for bit.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;
use sporran_kilt::{Hit, PassageId, Query};

use super::{
    builder::Model,
    index::Index,
    parts::lengths,
    postings::{Bounds, Cursor},
    search::{Pruning, Scratch, search},
};
use crate::{Error, PassageFilter, Result, Retriever, fusion::best_of_parts};

/// An index of a part.
struct Part {
    index: Index,
    /// The first passage of the part.
    first: u32,
    /// The norms of its passages; empty for a model without norms.
    norms: Vec<[u8; 4]>,
    bounds: Bounds,
}

/// Indexes of consecutive parts of the passages.
pub(crate) struct Sharded<M> {
    model: M,
    parts: Vec<Part>,
    passages: u32,
}

impl<M: Model> Sharded<M> {
    /// Opens the indexes of parts. Memory is 4 bytes a passage and a term, and 16 bytes for each 128 postings.
    ///
    /// # Errors
    /// [`Error::Part`] for parts of other options or with another number of passages; errors of a part.
    pub(crate) fn open(
        model: M,
        options: &impl Serialize,
        folders: &[PathBuf],
        passages: usize,
    ) -> Result<Self> {
        let options = serde_json::to_value(options)
            .map_err(|error| Error::Header { path: PathBuf::new(), message: error.to_string() })?;
        let mut indexes = Vec::new();
        for folder in folders {
            let index = Index::open_part::<M>(folder)?;
            index.check()?;
            if index.header().options != options {
                let [expected, found] = [&options, &index.header().options].map(ToString::to_string);
                return Err(Error::Part { path: folder.clone(), expected, found });
            }
            indexes.push(index);
        }
        let found: usize = indexes.iter().map(|index| index.header().passages as usize).sum();
        if found != passages {
            let path = folders.first().map_or(Path::new(""), PathBuf::as_path).to_owned();
            let [expected, found] = [passages, found].map(|count| format!("{count} passages in all parts"));
            return Err(Error::Part { path, expected, found });
        }
        let all = if M::HAS_NORMS {
            indexes.par_iter().map(lengths).collect::<Result<Vec<_>>>()?.concat()
        } else {
            Vec::new()
        };
        let norms = model.norms(&all);
        let mut starts = Vec::with_capacity(indexes.len());
        let mut first = 0;
        for index in &indexes {
            starts.push(first);
            first += index.header().passages;
        }
        let part = |(index, first): (Index, u32)| {
            let of_part = |norms: &[[u8; 4]]| {
                let start = first as usize;
                norms.get(start..start + index.header().passages as usize).unwrap_or_default().to_vec()
            };
            let norms = of_part(&norms);
            let bounds = index.bounds(&model.scorer(&norms))?;
            Ok(Part { index, first, norms, bounds })
        };
        let parts = indexes.into_par_iter().zip(starts).map(part).collect::<Result<_>>()?;
        Ok(Self { model, parts, passages: passages as u32 })
    }

    /// The cursors of a query's terms in each part.
    fn cursors(&self, query: &str) -> Result<Vec<Vec<Cursor<'_>>>> {
        let mut terms = self.model.terms(query);
        terms.sort_unstable();
        let mut cursors: Vec<Vec<Cursor<'_>>> = self.parts.iter().map(|_| Vec::new()).collect();
        for same in terms.chunk_by(|a, b| a == b) {
            let found: Vec<_> = self.parts.iter().map(|part| part.index.find(&same[0])).collect();
            let with_term = found.iter().flatten().map(|(_, entry)| entry.passages).sum();
            if with_term == 0 {
                continue;
            }
            let weight = self.model.weight(self.passages, same.len() as u32, with_term);
            let impacts = self
                .parts
                .iter()
                .zip(&found)
                .filter_map(|(part, found)| found.map(|(number, _)| part.bounds.of_term(number)));
            let impact = impacts.fold(0f32, f32::max);
            for ((part, found), cursors) in self.parts.iter().zip(found).zip(&mut cursors) {
                if let Some((number, entry)) = found {
                    cursors.push(part.index.bounded_cursor(number, entry, (weight, impact), &part.bounds)?);
                }
            }
        }
        Ok(cursors)
    }

    fn find(
        &self,
        query: &Query,
        k: usize,
        filter: Option<&PassageFilter<'_>>,
        scratch: &mut Scratch,
    ) -> Result<Vec<Hit>> {
        let mut found = Vec::new();
        for (part, cursors) in self.parts.iter().zip(self.cursors(&query.text)?) {
            let accepts = filter.map(|filter| move |id: PassageId| filter(PassageId(id.0 + part.first)));
            let accepts = accepts.as_ref().map(|accepts| accepts as &PassageFilter<'_>);
            let scorer = self.model.scorer(&part.norms);
            let passages = (part.index.header().passages, accepts);
            let hits = search(cursors, passages, k, &scorer, Pruning::On, scratch)?;
            found.extend(
                hits.into_iter().map(|hit| Hit { passage: PassageId(hit.passage.0 + part.first), ..hit }),
            );
        }
        Ok(best_of_parts(found, k))
    }

    fn find_all(
        &self,
        queries: &[Query],
        k: usize,
        filter: Option<&PassageFilter<'_>>,
    ) -> Result<Vec<Vec<Hit>>> {
        let one = |scratch: &mut Scratch, query| self.find(query, k, filter, scratch);
        queries.par_iter().map_init(Scratch::default, one).collect()
    }
}

impl<M: Model + Send> Retriever for Sharded<M> {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.find_all(queries, k, None)
    }

    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        self.find_all(queries, k, Some(filter))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;
    use sporran_kilt::folder::Shard;

    use super::*;
    use crate::sparse::{Bm25, Bm25Options, Build, TfIdf, TfIdfOptions};

    type Passage = (String, String);

    fn numbered(passages: &[Passage]) -> impl Iterator<Item = Result<(PassageId, &str, &str), Infallible>> {
        (0..).zip(passages).map(|(id, (title, text))| Ok((PassageId(id), title.as_str(), text.as_str())))
    }

    /// Rankings of the whole and of parts of it.
    fn compare(
        (passages, of): (&[Passage], u32),
        queries: &[Query],
        build: impl Fn(&[Passage], &Path),
        whole: impl Fn(&Path) -> Box<dyn Retriever>,
        parts: impl Fn(&[PathBuf]) -> Box<dyn Retriever>,
    ) {
        let place = tempfile::tempdir().unwrap();
        let mut folders = Vec::new();
        for index in 0..of {
            let range = Shard::new(index, of).unwrap().range(passages.len(), 1);
            if !range.is_empty() {
                let folder = place.path().join(index.to_string());
                build(&passages[range], &folder);
                folders.push(folder);
            }
        }
        let folder = place.path().join("whole");
        build(passages, &folder);
        let (whole, parts) = (whole(&folder), parts(&folders));
        let odd = |passage: PassageId| passage.0 % 2 == 1;
        for k in [1, 3, passages.len() + 1] {
            assert_eq!(parts.retrieve(queries, k).unwrap(), whole.retrieve(queries, k).unwrap());
            let found = parts.retrieve_filtered(queries, k, &odd).unwrap();
            assert_eq!(found, whole.retrieve_filtered(queries, k, &odd).unwrap());
        }
    }

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec("[a-h]{1,2}|the|,", 0..60).prop_map(|words| words.join(" "))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn rankings_and_scores_of_parts_are_those_of_one_index(
            passages in prop::collection::vec(("[a-c]{0,2}", text()), 1..600),
            asked in prop::collection::vec(text(), 1..4),
            of in 1u32..7,
        ) {
            let queries: Vec<Query> = asked.iter().map(|text| Query::of_text("q", text.as_str())).collect();
            let words = Bm25Options::default();
            compare(
                (&passages, of),
                &queries,
                |some, folder| {
                    Bm25::build(&words, numbered(some), "h", folder, Build::new(&mut |_| {})).unwrap();
                },
                |folder| Box::new(Bm25::open(folder, "h").unwrap()),
                |folders| Box::new(Bm25::open_parts(&words, folders, passages.len()).unwrap()),
            );
            let ngrams = TfIdfOptions { buckets: 64, ..TfIdfOptions::default() };
            compare(
                (&passages, of),
                &queries,
                |some, folder| {
                    TfIdf::build(&ngrams, numbered(some), "h", folder, Build::new(&mut |_| {})).unwrap();
                },
                |folder| Box::new(TfIdf::open(folder, "h").unwrap()),
                |folders| Box::new(TfIdf::open_parts(&ngrams, folders, passages.len()).unwrap()),
            );
        }
    }

    #[test]
    fn parts_of_other_options_or_passages_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let part = place.path().join("part");
        let passages = [("a".to_owned(), "b c".to_owned())];
        let options = Bm25Options::default();
        Bm25::build(&options, numbered(&passages), "h", &part, Build::new(&mut |_| {})).unwrap();
        let open = |options: &Bm25Options, passages| {
            Bm25::open_parts(options, &[part.clone()], passages).err().unwrap().to_string()
        };
        let error = open(&Bm25Options { k1: 1.2, ..options.clone() }, 1);
        assert!(error.contains(r#"part: expected {"#) && error.contains(r#""k1":1.2"#), "{error}");
        assert!(open(&options, 2).contains("expected 2 passages in all parts, found 1"));
    }
}
