//! The titles of all pages for constrained generation: the allowed next tokens, and the pages of a title (De
//! Cao et al. 2021, "Autoregressive Entity Retrieval").

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{PassageStore, folder::Place, store::PageIndex};
use sporran_transformers::decode::{Trie, TrieBuilder};

use crate::{
    Error, Result,
    layout::{self, Files, Folder, Mapped, Section, verify},
};

const KIND: &str = "titles";
const TRIE: &str = "trie";
const PAGES: &str = "pages";
/// A hash of tokens (u64) and a page (u32).
const ROW: usize = 12;
/// Memory for sorting titles.
const MEMORY: usize = 256 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Header {
    kind: String,
    passages_hash: String,
    titles: u64,
    sections: Vec<Section>,
}

layout::header!(Header, 1);

/// The tokenized titles of a store's pages, memory-mapped.
pub struct Titles {
    trie: Trie,
    pages: Mapped,
    folder: PathBuf,
    header: Header,
}

fn key(tokens: &[u32]) -> u64 {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(&bytes).as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

impl Titles {
    /// Writes the titles of the pages of `store` in `tokenizer`'s tokens to a folder, with `redirects` also
    /// their redirects. Existing titles are replaced. This process waits for another that builds at the same
    /// path. `progress` receives the number of finished titles. Titles without tokens are skipped.
    ///
    /// # Errors
    /// [`Error::Transformers`], [`Error::Io`] and [`sporran_kilt::Error::InTheWay`]; [`sporran_kilt::Error::Store`] for a
    /// damaged store.
    pub fn build(
        store: &PassageStore,
        tokenizer: &Tokenizer,
        redirects: bool,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let building = Folder::create(KIND, place.into())?;
        let path = building.path(TRIE);
        let vocabulary = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        let mut trie = TrieBuilder::new(&path, vocabulary, MEMORY)?;
        let mut rows: Vec<(u64, u32)> = Vec::with_capacity(store.pages());
        let titles = store.names_of_pages().filter(|(_, _, is_redirect)| redirects || !is_redirect);
        for (at, (page, title, _)) in titles.enumerate() {
            let tokens = tokenizer.encode_plain(title)?;
            if !tokens.is_empty() {
                trie.push(&tokens)?;
                rows.push((key(&tokens), page.0));
            }
            if at % 4096 == 0 {
                progress(at as u64);
            }
        }
        store.sound()?;
        let counts = trie.finish()?;
        rows.sort_unstable();
        rows.dedup();
        let mut pages = building.section(PAGES)?;
        for (key, page) in rows {
            let mut row = [0; ROW];
            row[..8].copy_from_slice(&key.to_le_bytes());
            row[8..].copy_from_slice(&page.to_le_bytes());
            pages.put(&row)?;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update_mmap_rayon(&path).map_err(Error::io(&path, "read"))?;
        let trie = Section {
            name: TRIE.into(),
            bytes: hasher.count(),
            blake3: hasher.finalize().to_hex().to_string(),
        };
        building.finish(&Header {
            kind: KIND.into(),
            passages_hash: store.hash().to_owned(),
            titles: counts.sequences,
            sections: vec![trie, pages.finish()?],
        })
    }

    /// Opens the titles in a folder, which must be of the store with this hash.
    ///
    /// # Errors
    /// As [`Bm25::open`](crate::sparse::Bm25::open).
    pub fn open(folder: &Path, passages_hash: &str) -> Result<Self> {
        let (header, files) = layout::open(folder, KIND, passages_hash)?;
        Self::of(folder, header, files)
    }

    fn of(folder: &Path, header: Header, mut files: Files) -> Result<Self> {
        let pages = files.take(PAGES)?;
        if pages.len() % ROW != 0 {
            return Err(pages.corrupt(format!("expected rows of {ROW} bytes")));
        }
        Ok(Self { trie: Trie::open(&folder.join(TRIE))?, pages, folder: folder.to_owned(), header })
    }

    /// Reads all titles and verifies their checksums.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Checksum`] naming the file.
    pub fn verify(&self) -> Result<()> {
        verify(&self.folder, &self.header)
    }

    /// The number of different titles.
    pub fn len(&self) -> usize {
        self.header.titles as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.header.titles == 0
    }

    /// The titles as token sequences, without special tokens.
    pub fn trie(&self) -> &Trie {
        &self.trie
    }

    /// The pages whose titles have these tokens, in the order of the store; several if the tokenizer maps
    /// titles to equal tokens.
    pub fn pages(&self, tokens: &[u32]) -> Vec<PageIndex> {
        let (rows, _) = self.pages.as_chunks::<ROW>();
        let at = |row: &[u8; ROW]| {
            let [a, b, c, d, e, f, g, h, page @ ..] = *row;
            (u64::from_le_bytes([a, b, c, d, e, f, g, h]), PageIndex(u32::from_le_bytes(page)))
        };
        let key = key(tokens);
        let first = rows.partition_point(|row| at(row).0 < key);
        rows[first..].iter().map(at).take_while(|row| row.0 == key).map(|row| row.1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::aliases::tests::world;

    /// Maps white-space words to ids; `paris` and `Paris` are equal, and unknown words have no token.
    fn tokenizer() -> Tokenizer {
        let json = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
            "normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,
            "decoder":null,"model":{"type":"WordLevel",
            "vocab":{"<unk>":0,"paris":1,"new":2,"york":3,"city":4,"big":5,"apple":6},"unk_token":"<unk>"}}"#;
        Tokenizer::from_json(Path::new("tokenizer.json"), json.into()).unwrap()
    }

    #[test]
    fn titles_are_found_by_their_tokens_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = world(
            folder.path(),
            &[("Paris", "a", &[]), ("New York", "b", &[]), ("paris", "c", &[]), ("New York City", "d", &[])],
        );
        let path = folder.path().join("titles");
        Titles::build(&store, &tokenizer(), false, &path, &mut |_| {}).unwrap();
        let titles = Titles::open(&path, store.hash()).unwrap();
        titles.verify().unwrap();
        assert_eq!(titles.len(), 3);
        assert_eq!(titles.pages(&[1]), [PageIndex(0), PageIndex(2)]);
        assert_eq!(titles.pages(&[2, 3]), [PageIndex(1)]);
        assert!(titles.trie().contains(&[2, 3, 4]) && !titles.trie().contains(&[2]));
        assert!(titles.pages(&[2]).is_empty() && titles.pages(&[]).is_empty());
        assert!(matches!(Titles::open(&path, "other"), Err(Error::OtherPassages { .. })));
    }

    #[test]
    fn damage_that_a_stamp_hides_is_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = world(
            folder.path(),
            &[
                ("Paris", "a", &[]),
                ("New York", "b", &[]),
                ("New York City", "c", &[]),
                ("Big Apple", "d", &[]),
            ],
        );
        let path = folder.path().join("titles");
        Titles::build(&store, &tokenizer(), true, &path, &mut |_| {}).unwrap();
        layout::damage_each(&path, || {
            let (header, files) = layout::open_unchecked(&path, KIND, store.hash()).unwrap();
            let Ok(titles) = Titles::of(&path, header, files) else { return };
            for tokens in [&[1][..], &[2, 3], &[2, 3, 4], &[5, 6]] {
                let _ = titles.trie().contains(tokens);
                assert!(titles.pages(tokens).into_iter().all(|page| store.passages_of(page).end <= 4));
            }
        });
    }

    #[test]
    fn a_redirect_can_be_written_in_the_place_of_its_page() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = world(folder.path(), &[("Paris", "a", &[]), ("New York City", "b", &[])]);
        let open = |redirects: bool| {
            let path = folder.path().join(format!("titles-{redirects}"));
            Titles::build(&store, &tokenizer(), redirects, &path, &mut |_| {}).unwrap();
            Titles::open(&path, store.hash()).unwrap()
        };
        let (without, with) = (open(false), open(true));
        assert_eq!([without.len(), with.len()], [2, 3]);
        assert!(without.pages(&[5, 6]).is_empty());
        assert_eq!(with.pages(&[5, 6]), [PageIndex(1)]);
        assert_eq!(with.pages(&[2, 3, 4]), [PageIndex(1)]);
        assert!(with.trie().contains(&[5, 6]));
    }
}
