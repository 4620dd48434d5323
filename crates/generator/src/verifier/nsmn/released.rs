//! The matching networks that their authors released for FEVER (Nie, Chen and Bansal, 2019).
//!
//! They read words as GloVe and ELMo vectors. A network that checks claims also reads a word's WordNet relations to the
//! other text, the code of a number, and the probability that the word's sentence is evidence.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result, appear, json, tensors, tensors_of};
use sporran_transformers::{LstmOptions, PackedBiLstm};

use super::{
    comparison::{Comparison, PackedComparison, Read},
    config::is_of_type,
    elmo::Elmo,
    features::{FEATURES, Features},
    in_batches,
    stored::Stored,
    vocabulary::{UNKNOWN, Vocabulary, WORDS},
};

/// The `model_type` in the `config.json` of a released matching network.
pub const RELEASED_NSMN: &str = "nsmn-released";

/// The authors' file of weights, renamed from its long original name.
const WEIGHTS: &str = "model";
/// The folder of WordNet's and the tagger's files.
const WORDNET: &str = "wordnet";
/// The word that replaces an empty text.
const EMPTY: &str = "@@@EMPTY@@@";

/// The `config.json` of a released matching network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleasedNsmnConfig {
    /// `nsmn-released`.
    pub model_type: String,
    /// Words of a text that ELMo and WordNet's features see, at most.
    pub read_length: Option<usize>,
    /// Words of a text that the network sees, at most.
    pub max_length: usize,
    /// The labels' names.
    pub labels: Vec<String>,
}

impl ReleasedNsmnConfig {
    /// Whether a folder's `config.json` is that of a released matching network.
    ///
    /// # Errors
    /// Those of reading a file.
    pub fn names(folder: &Path) -> Result<bool> {
        is_of_type(folder, RELEASED_NSMN)
    }
}

/// Two texts as words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WordPair {
    /// The evidence; the claim where pages are selected.
    pub first: Vec<String>,
    /// For each of its words, the probability that the word's sentence is evidence.
    pub relevance: Vec<f32>,
    /// The claim; a page's title and first sentence where pages are selected.
    pub second: Vec<String>,
}

/// A released matching network.
#[derive(Debug)]
pub struct ReleasedNsmn {
    config: ReleasedNsmnConfig,
    vocabulary: Vocabulary,
    /// (words, width)
    glove: Tensor,
    elmo: Elmo,
    features: Option<Features>,
    packed: PackedComparison,
}

/// Whether a folder holds a matching network as its authors released it: their words and a file of weights.
#[must_use]
pub fn is_released_nsmn(folder: &Path) -> bool {
    [WORDS, UNKNOWN, WEIGHTS].iter().all(|name| folder.join(name).is_file())
}

/// Writes a network that its authors released into `to`, which must not exist or be empty: it appears whole or not at all.
///
/// `folder` holds the released file of weights as `model`, `tokens.txt` and `unk_count_namespaces.txt` of the released
/// vocabulary, and for a network that checks claims a folder `wordnet` with the files of WordNet 3.0 and of NLTK's tagger.
/// Of the two labels of a network that selects pages or sentences, the second becomes the one that means evidence.
///
/// # Errors
/// [`Error::Exists`] where `to` holds something; [`Error::MissingTensor`], [`Error::TensorShape`], [`Error::Line`], and those
/// of reading the files.
pub fn import_nsmn(folder: &Path, to: &Path) -> Result<()> {
    let mut tensors = tensors_of(folder, WEIGHTS, DType::F32, &Device::Cpu)?;
    // PyTorch lists the layers after the matcher twice.
    tensors.retain(|name, _| !name.starts_with("esim_layer.classifier."));
    let path = folder.join(WEIGHTS);
    let labels = Stored::new(&path, &tensors).tensor("esim_layer.sm.bias", &[None])?.dim(0)?;
    let (labels, read_length, max_length): (&[&str], _, _) = match labels {
        2 => (&["other", "evidence"], None, 300),
        _ => (&["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"], Some(420), 400),
    };
    if labels.len() == 2 {
        let turned = Tensor::new(&[1u32, 0], &Device::Cpu)?;
        for name in ["esim_layer.sm.weight", "esim_layer.sm.bias"] {
            if let Some(tensor) = tensors.get_mut(name) {
                *tensor = tensor.index_select(&turned, 0)?;
            }
        }
    }
    let config = ReleasedNsmnConfig {
        model_type: RELEASED_NSMN.into(),
        read_length,
        max_length,
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    // Errors name the given files.
    ReleasedNsmn::over(config.clone(), Vocabulary::open(folder)?, &tensors, path, folder)?;
    let copy = |from: &Path, into: &Path| fs::copy(from, into).map_err(Error::io(from, "copy"));
    appear(to, |into| {
        for name in [WORDS, UNKNOWN] {
            copy(&folder.join(name), &into.join(name))?;
        }
        let wordnet = folder.join(WORDNET);
        if wordnet.is_dir() {
            let inner = into.join(WORDNET);
            fs::create_dir(&inner).map_err(Error::io(&inner, "create"))?;
            for entry in fs::read_dir(&wordnet).map_err(Error::io(&wordnet, "read"))? {
                let from = entry.map_err(Error::io(&wordnet, "read"))?.path();
                if let Some(name) = from.file_name().filter(|_| from.is_file()) {
                    copy(&from, &inner.join(name))?;
                }
            }
        }
        let path = into.join("config.json");
        let text = serde_json::to_string_pretty(&config).map_err(|source| Error::Json {
            path: path.clone(),
            field: ".".into(),
            source,
        })?;
        fs::write(&path, text + "\n").map_err(Error::io(&path, "write"))?;
        Ok(candle_core::safetensors::save(&tensors, into.join("model.safetensors"))?)
    })
}

impl ReleasedNsmn {
    /// Loads a folder that [`import_nsmn`] wrote.
    ///
    /// # Errors
    /// Where a file is missing or wrong.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let text = json::text(&path)?
            .ok_or_else(|| Error::MissingFile { folder: folder.into(), expected: "config.json" })?;
        let config: ReleasedNsmnConfig = json::parse(&path, &text)?;
        let vocabulary = Vocabulary::open(folder)?;
        let (tensors, path) = tensors(folder, DType::F32, &Device::Cpu)?;
        Self::over(config, vocabulary, &tensors, path, folder)
    }

    fn over(
        config: ReleasedNsmnConfig,
        vocabulary: Vocabulary,
        tensors: &HashMap<String, Tensor>,
        path: PathBuf,
        folder: &Path,
    ) -> Result<Self> {
        let stored = Stored::new(&path, tensors);
        let glove = stored.matrix("glove_embd_layer.weight", Some(vocabulary.size()), None)?;
        let elmo = Elmo::open(&stored.under("elmo_embd_layer"))?;
        let layers = stored.under("esim_layer");
        let words = glove.dim(1)? + elmo.width()?;
        let (gates, inputs) = layers.matrix("lstm_1.weight_ih_l0", None, None)?.dims2()?;
        let features = match inputs.checked_sub(words) {
            Some(0) => None,
            // The features and the sentence's relevance.
            Some(more) if more == FEATURES + 1 => Some(Features::open(&folder.join(WORDNET))?),
            _ => {
                let expected = (gates, words + FEATURES + 1).into();
                let tensor = "esim_layer.lstm_1.weight_ih_l0".into();
                return Err(Error::TensorShape { path, tensor, expected, found: (gates, inputs).into() });
            }
        };
        let hidden = gates / 4;
        let align = layers.linear("projection", None, 8 * hidden)?;
        let inner_inputs = layers.matrix("lstm_2.weight_hh_l0", None, None)?.dim(1)? * 8;
        let inner = layers.linear("mlp_1", None, inner_inputs)?;
        let output = layers.linear("sm", Some(config.labels.len()), inner.weight().dim(0)?)?;
        let lstm = |inputs, hidden, name: &str| {
            let options = LstmOptions { inputs, hidden, layers: 1, dropout: 0.0 };
            PackedBiLstm::open(options, &format!("esim_layer.{name}"), tensors)
        };
        let again = align.weight().dim(0)? + inputs - glove.dim(1)?;
        let (encoder, matcher) = (lstm(inputs, hidden, "lstm_1")?, lstm(again, inner_inputs / 8, "lstm_2")?);
        let comparison = Comparison { align, inner, output, dropout: 0.0 };
        let packed = PackedComparison { encoder, matcher, comparison };
        Ok(Self { config, vocabulary, glove, elmo, features, packed })
    }

    /// The network with other lengths than its config's: words of a text that ELMo sees, and that the network sees, at most.
    #[must_use]
    pub fn with_lengths(mut self, read_length: usize, max_length: usize) -> Self {
        self.config.read_length = Some(read_length);
        self.config.max_length = max_length;
        self
    }

    /// The config.
    #[must_use]
    pub fn config(&self) -> &ReleasedNsmnConfig {
        &self.config
    }

    /// The logits of each pair, one for each label. Batches have about `tokens` words; a pair's logits do not depend on the
    /// other pairs.
    ///
    /// # Errors
    /// [`Error::Batch`] where a second text is empty or `relevance` is not as long as the first.
    pub fn logits(&self, pairs: &[WordPair], tokens: usize) -> Result<Vec<Vec<f32>>> {
        if let Some(wrong) =
            pairs.iter().find(|pair| pair.second.is_empty() || pair.relevance.len() != pair.first.len())
        {
            return Err(Error::Batch {
                expected: "a second text of some words, and a relevance for each word of the first".into(),
                found: format!(
                    "{} words, {} for {}",
                    wrong.second.len(),
                    wrong.relevance.len(),
                    wrong.first.len()
                ),
            });
        }
        let pairs: Vec<WordPair> = pairs.iter().map(|pair| self.cut(pair)).collect();
        let lengths: Vec<usize> = pairs.iter().map(|pair| pair.first.len() + pair.second.len()).collect();
        in_batches(&lengths, tokens, |batch| {
            let members: Vec<&WordPair> = batch.iter().map(|&at| &pairs[at]).collect();
            self.packed.logits(&self.read(&members)?)
        })
    }

    /// A pair, truncated to the network's lengths.
    fn cut(&self, pair: &WordPair) -> WordPair {
        let most = self.config.read_length.unwrap_or(usize::MAX);
        let first = |words: &[String]| words[..words.len().min(most)].to_vec();
        if pair.first.is_empty() {
            return WordPair { first: vec![EMPTY.into()], relevance: vec![0.0], second: first(&pair.second) };
        }
        let relevance = pair.relevance[..pair.relevance.len().min(most)].to_vec();
        WordPair { first: first(&pair.first), relevance, second: first(&pair.second) }
    }

    fn read(&self, pairs: &[&WordPair]) -> Result<Read> {
        let texts: Vec<&[String]> =
            pairs.iter().flat_map(|pair| [pair.first.as_slice(), pair.second.as_slice()]).collect();
        let elmo = self.elmo.vectors(&texts)?;
        let numbers: Vec<u32> =
            texts.iter().copied().flatten().map(|word| self.vocabulary.number(word)).collect();
        let glove = self.glove.index_select(&Tensor::new(numbers.as_slice(), &Device::Cpu)?, 0)?;
        let (glove_width, elmo_width) = (glove.dim(1)?, elmo.dim(1)?);
        let (glove, elmo) = (glove.flatten_all()?.to_vec1::<f32>()?, elmo.flatten_all()?.to_vec1::<f32>()?);
        let more = if self.features.is_some() { FEATURES + 1 } else { 0 };
        let width = glove_width + elmo_width + more;
        let mut read = Read { lengths: Vec::new(), xs: Vec::new(), width, again: width - glove_width };
        fn words(text: &[String]) -> Vec<&str> {
            text.iter().map(String::as_str).collect()
        }
        let mut from = 0;
        for pair in pairs {
            let of_words = match &self.features {
                Some(features) => <[_; 2]>::from(features.of(&words(&pair.first), &words(&pair.second))),
                None => Default::default(),
            };
            // A claim's words have relevance 1.
            let claim = vec![1.0; pair.second.len()];
            for ((words, relevance), features) in
                [(&pair.first, &pair.relevance), (&pair.second, &claim)].into_iter().zip(of_words)
            {
                let kept = words.len().min(self.config.max_length);
                for at in 0..kept {
                    read.xs.extend(&glove[(from + at) * glove_width..][..glove_width]);
                    read.xs.extend(&elmo[(from + at) * elmo_width..][..elmo_width]);
                    if let Some(features) = features.get(at) {
                        read.xs.extend(features);
                        read.xs.push(relevance[at]);
                    }
                }
                read.lengths.push(kept);
                from += words.len();
            }
        }
        Ok(read)
    }
}
