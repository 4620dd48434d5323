//! Devices and numeric types of models.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use candle_core::{DType, Device};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result};

/// A device by its name: `cpu`, `cuda` (the first GPU) or `cuda:N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceName {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU, counted from 0.
    Cuda(usize),
}

impl DeviceName {
    /// Whether this build can compute so. It can still be that the machine has no such device.
    ///
    /// # Errors
    /// [`Error::Options`] for a GPU in a build without the feature `cuda`, and for numbers that the device is not used
    /// with: a CPU takes f32 and int8, a GPU f32, f16 and bf16.
    pub fn check(self, precision: Precision) -> Result<()> {
        if self != Self::Cpu && !candle_core::utils::cuda_is_available() {
            return Err(Error::Options {
                option: "device",
                expected: "`cpu`, since this program was built without the feature `cuda`".into(),
                found: format!("`{self}`"),
            });
        }
        let expected = match (self, precision) {
            (Self::Cpu, Precision::F32 | Precision::Int8) => return Ok(()),
            (Self::Cuda(_), Precision::F32 | Precision::F16 | Precision::Bf16) => return Ok(()),
            (Self::Cpu, _) => "`f32` or `int8`",
            (Self::Cuda(_), _) => "`f32`, `f16` or `bf16`",
        };
        Err(Error::Options {
            option: "precision",
            expected: format!("{expected} on the device `{self}`"),
            found: format!("`{precision}`"),
        })
    }

    /// Opens the device; a GPU once for the whole process, since tensors of two openings cannot be brought together.
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`Error::Options`] for a GPU that does not answer.
    pub fn open(self) -> Result<Device> {
        self.check(Precision::F32)?;
        let Self::Cuda(number) = self else { return Ok(Device::Cpu) };
        static OPENED: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get(&number) {
            return Ok(device.clone());
        }
        let device = open_gpu(number).map_err(|error| Error::Options {
            option: "device",
            expected: "a GPU that can be opened".into(),
            // Without the backtrace that candle may append.
            found: format!("`{self}` ({})", error.to_string().lines().next().unwrap_or_default()),
        })?;
        Ok(opened.entry(number).or_insert(device).clone())
    }
}

#[cfg(feature = "cuda")]
use crate::cuda::open as open_gpu;

/// Refused by candle, which is built without CUDA.
#[cfg(not(feature = "cuda"))]
fn open_gpu(number: usize) -> candle_core::Result<Device> {
    Device::new_cuda(number)
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some(0),
            _ => text
                .strip_prefix("cuda:")
                .filter(|digits| !digits.starts_with('+'))
                .and_then(|n| n.parse().ok()),
        };
        number.map(Self::Cuda).ok_or_else(|| format!("expected `cpu`, `cuda` or `cuda:N`, found `{text}`"))
    }
}

impl TryFrom<String> for DeviceName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// The numeric type of a model's computation. Logits and scores are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32 bits. On a CPU, weights that a file stores in fewer bits stay so, with the same results.
    #[default]
    F32,
    /// Weights in 8 bits with a scale for each output, inputs of products in 8 bits with a scale for each row; on a CPU.
    Int8,
    /// 16 bits with 5 of exponent, on a GPU: finer than bf16, but beyond 65,504 there is only infinity, which the larger
    /// T5 reach.
    F16,
    /// 16 bits with 8 of exponent, on a GPU: f32's range.
    Bf16,
}

impl Precision {
    const NAMES: [(&'static str, Self); 4] =
        [("f32", Self::F32), ("int8", Self::Int8), ("f16", Self::F16), ("bf16", Self::Bf16)];

    /// The form of packed weights, on a CPU.
    pub(crate) fn packed(self) -> Result<sporran_kernels::Precision> {
        match self {
            Self::Int8 => Ok(sporran_kernels::Precision::Int8),
            _ => DeviceName::Cpu.check(self).map(|()| sporran_kernels::Precision::F32),
        }
    }

    /// The dtype of tensors.
    ///
    /// # Errors
    /// [`Error::Options`] for int8, which only packed weights have.
    pub fn dtype(self) -> Result<DType> {
        match self {
            Self::F32 => Ok(DType::F32),
            Self::F16 => Ok(DType::F16),
            Self::Bf16 => Ok(DType::BF16),
            Self::Int8 => Err(Error::Options {
                option: "precision",
                expected: "`f32`, `f16` or `bf16` for tensors".into(),
                found: format!("`{self}`"),
            }),
        }
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|&(_, precision)| precision)
            .ok_or_else(|| format!("expected `f32`, `int8`, `f16` or `bf16`, found `{text}`"))
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every precision is in the table.
        f.write_str(Self::NAMES.iter().find(|(_, precision)| precision == self).map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        let names =
            [("cpu", DeviceName::Cpu), ("cuda", DeviceName::Cuda(0)), ("cuda:3", DeviceName::Cuda(3))];
        for (text, name) in names {
            assert_eq!(text.parse(), Ok(name));
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for text in ["", "CUDA", "cuda:", "cuda:-1", "cuda:+1", "cuda:x", "gpu", "cuda 1"] {
            assert!(text.parse::<DeviceName>().unwrap_err().contains("expected `cpu`"), "{text}");
        }
        let json = serde_json::to_string(&(DeviceName::Cuda(1), Precision::Bf16)).unwrap();
        assert_eq!(json, r#"["cuda:1","bf16"]"#);
        assert_eq!(
            serde_json::from_str::<(DeviceName, Precision)>(&json).unwrap(),
            (DeviceName::Cuda(1), Precision::Bf16)
        );
    }

    #[test]
    fn each_device_takes_its_own_numbers() {
        for (name, precision) in Precision::NAMES {
            assert_eq!((name.parse(), precision.to_string()), (Ok(precision), name.to_owned()));
            let packed = matches!(precision, Precision::F32 | Precision::Int8);
            assert_eq!(DeviceName::Cpu.check(precision).is_ok(), packed, "{name}");
            assert_eq!(precision.packed().is_ok(), packed, "{name}");
            assert_eq!(precision.dtype().is_ok(), precision != Precision::Int8, "{name}");
        }
        let error = DeviceName::Cpu.check(Precision::Bf16).unwrap_err().to_string();
        assert!(error.contains("expected `f32` or `int8` on the device `cpu`, found `bf16`"), "{error}");
        assert!("F32".parse::<Precision>().is_err());
    }

    #[test]
    fn a_gpu_needs_a_build_with_cuda() {
        assert!(DeviceName::Cpu.open().unwrap().is_cpu());
        let checked = DeviceName::Cuda(0).check(Precision::F16);
        assert_eq!(checked.is_ok(), cfg!(feature = "cuda"));
        if let Err(error) = checked {
            assert!(error.to_string().contains("without the feature `cuda`, found `cuda:0`"), "{error}");
            assert!(DeviceName::Cuda(0).open().is_err());
        }
    }
}
