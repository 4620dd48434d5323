//! A neural semantic matching network that labels pairs of texts.

use std::{path::Path, sync::Arc};

use sporran_checkpoint::Tokenizer;

use crate::{
    Result,
    verifier::nsmn::{Nsmn, PackedNsmn, TokenPair},
};

use super::Labeller;

/// A matching network with its tokenizer.
pub struct Matcher {
    network: PackedNsmn,
    tokenizer: Tokenizer,
    batch_tokens: usize,
}

impl Matcher {
    /// Loads a folder.
    ///
    /// # Errors
    /// Where a file is missing or wrong.
    pub fn load(folder: &Path, batch_tokens: usize) -> Result<Self> {
        let tokenizer = Tokenizer::open(&folder.join("tokenizer.json"))?;
        Self::new(Arc::new(Nsmn::load(folder)?), tokenizer, batch_tokens)
    }

    /// A network that is loaded already, with its current weights.
    ///
    /// # Errors
    /// A tensor error.
    pub fn new(network: Arc<Nsmn>, tokenizer: Tokenizer, batch_tokens: usize) -> Result<Self> {
        Ok(Self { network: PackedNsmn::new(network)?, tokenizer, batch_tokens })
    }
}

/// Two texts as a matching network reads them, truncated to its length.
///
/// # Errors
/// Where the tokenizer fails.
pub fn token_pair(tokenizer: &Tokenizer, network: &Nsmn, first: &str, second: &str) -> Result<TokenPair> {
    let most = Some(network.config().max_length);
    Ok(TokenPair { first: tokenizer.encode(first, most)?, second: tokenizer.encode(second, most)? })
}

impl Labeller for Matcher {
    fn labels(&self) -> &[String] {
        &self.network.network().config().labels
    }

    fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
        let network = self.network.network();
        let pairs: Result<Vec<TokenPair>> =
            pairs.iter().map(|(first, second)| token_pair(&self.tokenizer, network, first, second)).collect();
        Ok(self.network.logits(&pairs?, self.batch_tokens)?)
    }
}
