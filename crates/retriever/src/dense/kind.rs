//! Dense retrieval as a kind of retriever: checks, and an index that is built once.

use std::path::{Path, PathBuf};

use sporran_config::{Document, Overrides};
use sporran_kernels::Isa;
use sporran_kilt::{PassageId, folder::Place, hash_json};
use sporran_transformers::{ModelType, Takers, TakesModel, wrong_model_type};

use super::{
    Dense, DenseOptions, Index, Progress, distance, fingerprint::encoder_hash, sharded::ShardedDense,
};
use crate::{
    PassageScorer, Result, Retriever,
    kind::RetrieverKind,
    plan::{IndexPlan, PlannedPassages},
    site::{Items, NewIndex, NewPart, PartFolders, PartSite, Site, folders_of, part_name, passages},
};

impl TakesModel for DenseOptions {
    const TAKES: &'static [ModelType] = ModelType::ENCODERS;
}

/// Reports a folder that is no encoder.
fn check_model(key: &str, folder: &Path, document: &mut Document<'_>) {
    document.check_encoder(key, folder);
    let takers: Takers = &[("dense", DenseOptions::TAKES)];
    if let Some(message) = wrong_model_type(folder, DenseOptions::TAKES, takers) {
        document.report_key(key, message);
    }
}

impl DenseOptions {
    /// The checks of [`RetrieverKind::check`]; without one of the query encoder's folder where it is yet to be trained.
    pub fn check_in(&self, key: &str, is_trained: bool, document: &mut Document<'_>) {
        if let Err(error) = self.check() {
            document.report_key(key, error.to_string());
        }
        match self.similarity() {
            Ok(similarity) => {
                if let Err(error) = distance::check(&self.index, similarity) {
                    document.report_key(&format!("{key}.index"), error.to_string());
                }
            }
            Err(error) => document.report_key(key, error.to_string()),
        }
        if is_trained {
            check_model(&format!("{key}.model"), &self.model, document);
        }
        if let Some(folder) = &self.passage_model {
            check_model(&format!("{key}.passage-model"), folder, document);
        }
    }

    /// The name of the parts of its vectors. The options of the index do not change vectors.
    fn part_name(&self) -> Result<String> {
        Ok(part_name("vectors", &encoder_hash(self)?))
    }

    /// A place whose folder gets its name only if the model is the one that was hashed before it was loaded.
    fn unchanged(&self, place: Place, before: &str) -> Place {
        let (options, before) = (self.clone(), before.to_owned());
        place.checked(move || match options.key() {
            Ok(now) if now == before => Ok(()),
            _ => Err(sporran_kilt::Error::Changed { path: options.passage_model.unwrap_or(options.model) }),
        })
    }

    /// Opens the retriever, building its index if it does not exist.
    ///
    /// # Errors
    /// As [`RetrieverKind::open`].
    pub fn open_index(&self, site: &mut dyn Site) -> Result<Dense> {
        let (key, store) = (self.key()?, site.store().clone());
        let index = NewIndex {
            kind: "dense",
            key: hash_json(&("dense", &key, store.hash())),
            items: Items::Passages,
        };
        site.announce(&index, &|passages| self.plan_index(passages))?;
        let parts = site.parts(&self.part_name()?);
        let folder = site.index(index, &mut |place, advance| {
            let place = self.unchanged(place, &key);
            let mut progress = |progress| {
                if let Progress::Encoded(done) = progress {
                    advance(done);
                }
            };
            if let Some(parts) = &parts {
                return Dense::merge(self, parts, (store.hash(), store.len()), place, &mut progress);
            }
            let from = |from: PassageId| passages(&store, from);
            Dense::build(self, from, store.hash(), place, &mut progress)
        })?;
        site.depends_on("search", None, hash_json(self));
        if self.passage_model.is_some() {
            let hash = hash_json(&site.files(&self.model)?);
            site.depends_on("queries", Some(&self.model), hash);
        }
        let dense = Dense::open(self, &folder, store.hash())?;
        dense.report(folder, site);
        Ok(dense)
    }
}

impl RetrieverKind for DenseOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.check_in(key, true, document);
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        let overrides = DenseOptions::overrides(self)?.into_iter();
        found.extend(overrides.map(|(option, values)| (format!("{key}.{option}"), values)));
        Ok(())
    }

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        Ok(vec![self.plan_index(passages)?])
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        Ok(Box::new(self.open_index(site)?))
    }

    fn build_parts(&self, site: &mut dyn PartSite) -> Result<()> {
        let store = site.whole()?;
        let range = site.shard().range(store.len(), Index::PORTION);
        if range.is_empty() {
            return Ok(());
        }
        let (name, before) = (self.part_name()?, self.key()?);
        // Another instruction set rounds differently.
        let isa = Isa::detected().to_string();
        let key = hash_json(&(&name, encoder_hash(self)?, store.hash(), &range, isa));
        let new = NewPart { name, key, passages: range.len() };
        site.part(new, &mut |place, advance| {
            let mut progress = |progress| {
                if let Progress::Encoded(done) = progress {
                    advance(done);
                }
            };
            let from = |from: PassageId| passages(&store, from);
            let place = self.unchanged(place, &before);
            Dense::build_part(self, &range, from, store.hash(), place, &mut progress)
        })
    }

    fn open_shards(
        &self,
        shards: &[(PathBuf, PartFolders)],
        site: &mut dyn Site,
    ) -> Result<Option<Box<dyn Retriever>>> {
        let folders = folders_of(shards, &self.part_name()?)?;
        let dense = ShardedDense::open(self, &folders, site)?;
        site.depends_on("search", None, hash_json(self));
        if self.passage_model.is_some() {
            let hash = hash_json(&site.files(&self.model)?);
            site.depends_on("queries", Some(&self.model), hash);
        }
        Ok(Some(Box::new(dense)))
    }

    fn build_vectors(&self, site: &mut dyn Site) -> Result<usize> {
        self.open_index(site).map(|_| 1)
    }

    fn open_scorer(&self, site: &mut dyn Site) -> Result<Option<Box<dyn PassageScorer>>> {
        Ok(Some(Box::new(self.open_index(site)?)))
    }
}

#[cfg(test)]
mod tests {
    use sporran_config::Text;

    use super::*;

    #[test]
    fn a_model_that_is_no_encoder_is_reported() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data");
        let check = |model: &str, passages: &str| {
            let [model, passages] = [model, passages].map(|name| data.join(name));
            let keys = format!("[retriever]\nmodel = {model:?}\npassage-model = {passages:?}\n");
            let text = Text::new(Path::new("c.toml"), keys, &[]);
            let mut document = Document::parse(&text);
            let written = document.clone();
            let table = document.take_stage("retriever").ok().flatten().unwrap();
            let dense: DenseOptions = document.read("retriever", table, &[]).unwrap();
            document.restore(written);
            dense.check_in("retriever", true, &mut document);
            document.into_diagnostics().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let found = check("t5-relu", "gpt2");
        let start = "c.toml:2: `retriever.model`: expected an encoder, found an encoder-decoder (`t5`) in ";
        assert!(found[0].starts_with(start), "{found:?}");
        let start =
            "c.toml:3: `retriever.passage-model`: expected an encoder, found a decoder-only model (`gpt2`)";
        assert!(found[1].starts_with(start), "{found:?}");
        assert!(check("encoders/sentence", "encoders/dpr-context").is_empty());
    }
}
