//! How the states of a text's tokens become one vector, as sentence-transformers' `Pooling` module has it.

use std::{collections::HashMap, fmt, path::Path, str::FromStr};

use candle_core::{DType, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sporran_checkpoint::{Error, Result, json::parse, sentence::module_config};

use crate::layers::hidden_score;

/// How the states of an input's tokens become one vector. Padding takes no part, and neither does a prompt that is
/// left out of the pooling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Pooling {
    /// The first token's state.
    Cls,
    /// The greatest value of each dimension.
    Max,
    /// The mean.
    Mean,
    /// The sum over the root of the number of tokens.
    MeanSqrtLen,
    /// The mean, in which the token at position i (from 1, a prompt included) counts i times.
    WeightedMean,
    /// The last token's state.
    LastToken,
}

/// The names of the poolings, in the order in which sentence-transformers joins several, with the older field of each.
const POOLINGS: [(&str, &str, Pooling); 6] = [
    ("cls", "pooling_mode_cls_token", Pooling::Cls),
    ("max", "pooling_mode_max_tokens", Pooling::Max),
    ("mean", "pooling_mode_mean_tokens", Pooling::Mean),
    ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
    ("weightedmean", "pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
    ("lasttoken", "pooling_mode_lasttoken", Pooling::LastToken),
];

/// The names as an error lists them.
const EXPECTED: &str = "`cls`, `max`, `mean`, `mean_sqrt_len_tokens`, `weightedmean` or `lasttoken`";

impl Pooling {
    /// States (b, s, d) with their mask (b, s), 1 at the tokens that are pooled, to vectors (b, d).
    ///
    /// # Errors
    /// [`Error::Batch`] where a row has no token to pool, and a tensor error.
    pub fn pool(self, states: &Tensor, mask: &Tensor) -> Result<Tensor> {
        if let Some(places) = self.places(mask)? {
            let (batch, length, width) = states.dims3()?;
            let rows: Vec<u32> = places.iter().map(|(row, at)| (row * length + at) as u32).collect();
            let rows = Tensor::from_vec(rows, batch, states.device())?;
            return Ok(states.reshape((batch * length, width))?.index_select(&rows, 0)?);
        }
        spans(mask)?;
        if self == Self::Max {
            let mask = mask.to_dtype(states.dtype())?.unsqueeze(2)?;
            let hidden = hidden_score(states.dtype())?;
            // 1 becomes exactly 0, and 0 a number below every state.
            return Ok(states.broadcast_add(&mask.affine(-hidden, hidden)?)?.max(1)?);
        }
        // Sums are kept in 32 bits, as in sentence-transformers.
        let given = states.dtype();
        let wide = if matches!(given, DType::F16 | DType::BF16) { DType::F32 } else { given };
        let mut weights = mask.to_dtype(wide)?;
        if self == Self::WeightedMean {
            let positions = Tensor::arange(1, mask.dim(1)? as u32 + 1, mask.device())?;
            weights = weights.broadcast_mul(&positions.to_dtype(wide)?)?;
        }
        let weights = weights.unsqueeze(2)?;
        let sum = states.to_dtype(wide)?.broadcast_mul(&weights)?.sum(1)?;
        let total = weights.sum(1)?;
        let divisor = if self == Self::MeanSqrtLen { total.sqrt()? } else { total };
        Ok(sum.broadcast_div(&divisor)?.to_dtype(given)?)
    }

    /// The one token of each row that makes its vector, as row and position; `None` for a pooling over all tokens.
    ///
    /// # Errors
    /// As for [`pool`](Self::pool).
    pub(super) fn places(self, mask: &Tensor) -> Result<Option<Vec<(usize, usize)>>> {
        if !matches!(self, Self::Cls | Self::LastToken) {
            return Ok(None);
        }
        let place = |(row, (first, last)): (usize, (usize, usize))| {
            (row, if self == Self::Cls { first } else { last })
        };
        Ok(Some(spans(mask)?.into_iter().enumerate().map(place).collect()))
    }
}

/// The first and the last token of each row that is pooled.
fn spans(mask: &Tensor) -> Result<Vec<(usize, usize)>> {
    let rows = mask.to_dtype(DType::F32)?.to_vec2::<f32>()?;
    let span = |(row, mask): (usize, &Vec<f32>)| {
        let first = mask.iter().position(|kept| *kept > 0.0);
        let last = mask.iter().rposition(|kept| *kept > 0.0);
        first.zip(last).ok_or_else(|| Error::Batch {
            expected: "a token to pool in each row besides an excluded prompt".into(),
            found: format!("none in row {row}"),
        })
    };
    rows.iter().enumerate().map(span).collect()
}

impl FromStr for Pooling {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = POOLINGS.iter().find(|(known, _, _)| {
            *known == name || (name == "mean_sqrt_len" && *known == "mean_sqrt_len_tokens")
        });
        known.map(|(_, _, pooling)| *pooling).ok_or_else(|| Error::Options {
            option: "pooling",
            expected: EXPECTED.into(),
            found: format!("`{name}`"),
        })
    }
}

impl TryFrom<String> for Pooling {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<Pooling> for String {
    fn from(pooling: Pooling) -> Self {
        pooling.to_string()
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cls => "cls",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::MeanSqrtLen => "mean_sqrt_len",
            Self::WeightedMean => "weightedmean",
            Self::LastToken => "lasttoken",
        })
    }
}

/// Reads the folder of a `Pooling` module: its poolings, and whether a prompt's tokens are pooled.
pub(super) fn read(folder: &Path) -> Result<(Vec<Pooling>, bool)> {
    let (path, text) = module_config(folder)?;
    let fields: HashMap<String, Value> = parse(&path, &text)?;
    let wrong = |field: &str, expected: &str, found: String| Error::Config {
        path: path.clone(),
        field: field.into(),
        expected: expected.into(),
        found,
    };
    let flag = |field: &str| match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(set)) => Ok(Some(*set)),
        Some(other) => Err(wrong(field, "true or false", other.to_string())),
    };
    let include_prompt = flag("include_prompt")?.unwrap_or(true);
    let names: Vec<String> = match fields.get("pooling_mode") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned)).collect()
        }
        None | Some(Value::Null) => {
            let mut set = Vec::new();
            for (name, field, _) in POOLINGS {
                if flag(field)? == Some(true) {
                    set.push(name.to_owned());
                }
            }
            set
        }
        Some(other) => return Err(wrong("pooling_mode", "a name or a list of names", other.to_string())),
    };
    if names.is_empty() {
        return Ok((vec![Pooling::Mean], include_prompt));
    }
    let known = |name: &String| {
        let known = POOLINGS.iter().find(|(known, _, _)| known == name);
        known
            .map(|(_, _, pooling)| *pooling)
            .ok_or_else(|| wrong("pooling_mode", EXPECTED, format!("`{name}`")))
    };
    Ok((names.iter().map(known).collect::<Result<_>>()?, include_prompt))
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::Pooling;

    const ALL: [Pooling; 6] = [
        Pooling::Cls,
        Pooling::Max,
        Pooling::Mean,
        Pooling::MeanSqrtLen,
        Pooling::WeightedMean,
        Pooling::LastToken,
    ];

    fn pooled(pooling: Pooling, mask: &[[f32; 3]; 2]) -> sporran_checkpoint::Result<Vec<Vec<f32>>> {
        let states = [[[1.0f32, -4.0], [3.0, -2.0], [6.0, 0.0]], [[5.0, -6.0], [9.0, 9.0], [9.0, 9.0]]];
        let states = Tensor::new(&states, &Device::Cpu)?;
        Ok(pooling.pool(&states, &Tensor::new(mask, &Device::Cpu)?)?.to_vec2()?)
    }

    #[test]
    fn padding_is_not_pooled() {
        // The second row has one token, (5, -6); the other states are padding.
        let mask = [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]];
        let root = 2.0f32.sqrt();
        for (pooling, first) in ALL.into_iter().zip([
            [1.0, -4.0],
            [3.0, -2.0],
            [2.0, -3.0],
            [4.0 / root, -6.0 / root],
            [7.0 / 3.0, -8.0 / 3.0],
            [3.0, -2.0],
        ]) {
            let found = pooled(pooling, &mask).unwrap();
            assert!(found[0].iter().zip(first).all(|(a, b)| (a - b).abs() < 1e-6), "{pooling}: {found:?}");
            assert_eq!(found[1], [5.0, -6.0], "{pooling}");
        }
    }

    #[test]
    fn tokens_before_the_pooled_ones_are_left_out_and_keep_their_positions() {
        // The first token of the first row is a prompt's.
        let mask = [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]];
        for (pooling, first) in ALL.into_iter().zip([
            [3.0, -2.0],
            [6.0, 0.0],
            [4.5, -1.0],
            [9.0 / 2.0f32.sqrt(), -2.0f32.sqrt()],
            [24.0 / 5.0, -4.0 / 5.0],
            [6.0, 0.0],
        ]) {
            let found = pooled(pooling, &mask).unwrap();
            assert!(found[0].iter().zip(first).all(|(a, b)| (a - b).abs() < 1e-6), "{pooling}: {found:?}");
        }
    }

    #[test]
    fn a_row_without_a_token_to_pool_is_an_error() {
        for pooling in ALL {
            let error = pooled(pooling, &[[1.0; 3], [0.0; 3]]).unwrap_err().to_string();
            assert!(error.contains("none in row 1"), "{pooling}: {error}");
        }
    }

    #[test]
    fn a_pooling_is_read_by_the_name_that_it_is_written_with() {
        for pooling in ALL {
            assert_eq!(pooling.to_string().parse::<Pooling>().unwrap(), pooling);
        }
        assert_eq!("mean_sqrt_len_tokens".parse::<Pooling>().unwrap(), Pooling::MeanSqrtLen);
        let error = "median".parse::<Pooling>().unwrap_err().to_string();
        assert!(error.contains("`weightedmean` or `lasttoken`, found `median`"), "{error}");
    }
}
