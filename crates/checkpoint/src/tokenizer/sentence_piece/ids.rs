//! Vocabularies of which SentencePiece's file splits texts and `vocab.json` has the ids, as Marian and M2M100 have them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use serde_json::json;
use tokenizers::AddedToken;

use super::{super::FOREIGN, Failure, MARK, Model, Piece, PieceKind, Value, replace, replace_regex};
use crate::{
    error::{Error, Result},
    json::{self, parse},
};

/// The file of the ids.
pub(super) const IDS: &str = "vocab.json";

/// The ids of pieces.
pub(super) struct Ids(BTreeMap<String, u32>);

impl Ids {
    /// The ids of a folder.
    ///
    /// # Errors
    /// [`Error::MissingFile`], [`Error::Json`], and [`Error::Tokenizer`] for ids with gaps and for a vocabulary without a token
    /// of `roles`.
    pub(super) fn read(folder: &Path, roles: &[AddedToken]) -> Result<Self> {
        let path = folder.join(IDS);
        let ids: BTreeMap<String, u32> = parse(&path, &json::required(&path)?)?;
        let wrong = |problem: String| Error::Tokenizer { path: path.clone(), source: Failure::from(problem) };
        let mut by_id: Vec<(u32, &String)> = ids.iter().map(|(piece, id)| (*id, piece)).collect();
        by_id.sort_unstable();
        if let Some((at, (id, piece))) = (0u32..).zip(&by_id).find(|(at, (id, _))| at != id) {
            return Err(wrong(format!("expected the id {at} once, found `{piece}` with the id {id}")));
        }
        if let Some(role) = roles.iter().find(|role| !ids.contains_key(&role.content)) {
            return Err(wrong(format!("expected the special token `{}`, found none", role.content)));
        }
        Ok(Self(ids))
    }

    /// The pieces, in the order of their texts.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The id of a piece that exists.
    pub(super) fn id(&self, piece: &str) -> u32 {
        self.0[piece]
    }

    /// The number of ids.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// The words of a tokenizer, each at its id. Those that the model lacks and that are not `added` have [`FOREIGN`] at their
    /// end, so that no text is split into them.
    pub(super) fn words(&self, model: &Model, added: &[AddedToken]) -> Vec<(String, f64)> {
        let scores: HashMap<&str, f64> =
            texts(model).map(|piece| (piece.text.as_str(), f64::from(piece.score))).collect();
        let names: HashSet<&str> = added.iter().map(|token| token.content.as_str()).collect();
        let word = |piece: &String| match scores.get(piece.as_str()) {
            Some(score) => (piece.clone(), *score),
            None if names.contains(piece.as_str()) => (piece.clone(), 0.0),
            None => (format!("{piece}{FOREIGN}"), 0.0),
        };
        let mut by_id: Vec<(u32, &String)> = self.0.iter().map(|(piece, id)| (*id, piece)).collect();
        by_id.sort_unstable();
        by_id.into_iter().map(|(_, piece)| word(piece)).collect()
    }

    /// The pieces of the model that have no id.
    pub(super) fn beyond(&self, model: &Model) -> Vec<(String, f64)> {
        let others = texts(model).filter(|piece| !self.0.contains_key(&piece.text));
        others.map(|piece| (piece.text.clone(), f64::from(piece.score))).collect()
    }
}

/// The pieces that texts are split into.
fn texts(model: &Model) -> impl Iterator<Item = &Piece> {
    let is_text = |kind| matches!(kind, PieceKind::Normal | PieceKind::UserDefined | PieceKind::Byte);
    model.pieces.iter().filter(move |piece| is_text(piece.kind))
}

/// The steps of a normaliser that make marks of spaces, by the settings of the model.
pub(super) fn spaces(model: &Model) -> Vec<Value> {
    let mut steps = Vec::new();
    if model.remove_extra_whitespaces {
        steps.extend([replace_regex(r"\A +| +\z", ""), replace_regex(" {2,}", " ")]);
    }
    if model.add_dummy_prefix {
        steps.push(json!({ "type": "Prepend", "prepend": MARK }));
    }
    steps.push(replace(" ", MARK));
    steps
}

/// The decoder: pieces with spaces in place of marks, and without spaces around the text.
pub(super) fn decoder() -> Value {
    json!({ "type": "Sequence", "decoders": [
        replace(FOREIGN, ""), replace(MARK, " "), { "type": "ByteFallback" }, { "type": "Fuse" },
        replace_regex(r"\A +| +\z", ""),
    ] })
}
