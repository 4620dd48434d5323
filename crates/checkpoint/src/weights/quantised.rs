//! Quantised weights: fp8 with a scale for each block (DeepSeek-AI 2024) and mxfp4 (Open Compute Project 2023, "Microscaling
//! formats"). They become plain numbers when they are read.

use std::path::Path;

use candle_core::{DType, Shape};
use safetensors::Dtype;
use serde_json::{Map, Value};

use super::{
    file::{RawTensor, WeightFile},
    mapped::MappedBytes,
    tensor::StoredTensor,
};
use crate::{
    error::{Error, Result},
    json::parse,
};

/// The end of the name of an fp8 tensor's scales.
pub(crate) const SCALES: &str = "_scale_inv";
/// The ends of the names of the two tensors of an mxfp4 parameter.
pub(crate) const BLOCKS: &str = "_blocks";
pub(crate) const EXPONENTS: &str = "_scales";
/// The rows and the columns of a block of fp8 values.
const BLOCK: usize = 128;
/// The values of a block of mxfp4.
const GROUP: usize = 32;
/// The methods whose files are read.
const METHODS: [&str; 2] = ["fp8", "mxfp4"];

/// How a parameter's values are quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Numbers of 8 bits (E4M3), and a factor for each block of them.
    Fp8,
    /// Numbers of 4 bits (E2M1), and an exponent for each 32 of them.
    Mxfp4,
}

/// Checks that the `quantization_config` of a `config.json` is none, or one of a method whose files are read; `path` names the
/// file in errors.
///
/// # Errors
/// [`Error::Json`] for a text that is no object, and [`Error::Config`] for another method or setting.
pub fn check_quantisation(path: &Path, text: &str) -> Result<()> {
    let config: Map<String, Value> = parse(path, text)?;
    let Some(Value::Object(fields)) = config.get("quantization_config") else { return Ok(()) };
    let wrong = |field: &str, expected: String, found: String| Error::Config {
        path: path.into(),
        field: format!("quantization_config.{field}"),
        expected,
        found,
    };
    let is_set = |field: &str| fields.get(field).and_then(Value::as_bool) == Some(true);
    let method = match fields.get("quant_method").and_then(Value::as_str) {
        Some(method) => method,
        None if is_set("load_in_4bit") || is_set("load_in_8bit") => "bitsandbytes",
        None => "none",
    };
    if !METHODS.contains(&method) {
        let known = METHODS.map(|method| format!("`{method}`")).join(" or ");
        let expected = format!("{known}; use the model's weights in bf16 or f16, or its GGUF file");
        return Err(wrong("quant_method", expected, format!("`{method}`")));
    }
    if let Some(size) = fields.get("weight_block_size").filter(|size| !size.is_null())
        && *size != Value::from(vec![BLOCK, BLOCK])
    {
        return Err(wrong("weight_block_size", format!("[{BLOCK}, {BLOCK}] or null"), size.to_string()));
    }
    match fields.get("expert_dtype").filter(|kind| !kind.is_null() && **kind != "fp8") {
        Some(kind) => Err(wrong("expert_dtype", "`fp8`".into(), kind.to_string())),
        None => Ok(()),
    }
}

/// The number that a byte of E4M3 stands for: a sign, 4 bits of an exponent with the bias 7, and 3 bits of a fraction. There is
/// no infinity.
fn e4m3(byte: u8) -> f32 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f32::from(byte & 7) / 8.0);
    let size = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction * 2f32.powi(-6),
        _ => (1.0 + fraction) * 2f32.powi(exponent - 7),
    };
    if byte >> 7 == 1 { -size } else { size }
}

/// The numbers that four bits of E2M1 stand for.
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Two to the power that a byte of E8M0 stands for.
fn e8m0(byte: u8) -> f32 {
    2f32.powi(i32::from(byte) - 127)
}

/// The rows and columns of each block that has a scale, of `rows` and `columns` with a grid of `scales`.
fn block((rows, columns): (usize, usize), scales: (usize, usize)) -> Option<(usize, usize)> {
    if (rows.div_ceil(BLOCK), columns.div_ceil(BLOCK)) == scales {
        return Some((BLOCK, BLOCK));
    }
    // A scale for each row, for the whole tensor, or for smaller blocks.
    let is_even =
        scales.0 > 0 && scales.1 > 0 && rows.is_multiple_of(scales.0) && columns.is_multiple_of(scales.1);
    is_even.then(|| (rows / scales.0, columns / scales.1))
}

/// The last two dimensions; 1 where there are fewer.
fn last_two(shape: &[usize]) -> (usize, usize) {
    let from_end = |at: usize| shape.len().checked_sub(at).map_or(1, |at| shape[at]);
    (from_end(2), from_end(1))
}

/// Checks the scales of an fp8 tensor of `file`.
pub(crate) fn check_fp8(
    file: &WeightFile,
    weights: &StoredTensor,
    (scale_file, scales): (&WeightFile, &StoredTensor),
) -> Result<()> {
    let (grid, size) = (last_two(&scales.shape), last_two(&weights.shape));
    let leading = |shape: &[usize]| shape[..shape.len().saturating_sub(2)].iter().product::<usize>();
    let is_whole = scales.count() == leading(&weights.shape) * grid.0 * grid.1;
    if weights.shape.len() < 2 || !is_whole || block(size, grid).is_none() {
        let expected = vec![size.0.div_ceil(BLOCK), size.1.div_ceil(BLOCK)];
        return Err(Error::TensorShape {
            path: scale_file.path().into(),
            tensor: scales.name.clone(),
            expected: Shape::from(expected),
            found: Shape::from(scales.shape.as_slice()),
        });
    }
    if weights.dtype != Dtype::F8_E4M3 {
        return Err(other_type(file, weights));
    }
    match scales.dtype {
        Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F8_E8M0 | Dtype::U8 => Ok(()),
        _ => Err(other_type(scale_file, scales)),
    }
}

/// Checks the two tensors of an mxfp4 parameter of this shape: (.., columns, rows).
pub(crate) fn check_mxfp4(
    file: &WeightFile,
    blocks: &StoredTensor,
    (scale_file, exponents): (&WeightFile, &StoredTensor),
    shape: &[usize],
) -> Result<()> {
    let (columns, rows) = last_two(shape);
    let leading = &shape[..shape.len().saturating_sub(2)];
    let of_exponents = [leading, &[rows, columns / GROUP]].concat();
    let of_blocks = [&of_exponents[..], &[GROUP / 2]].concat();
    for (file, tensor, expected) in [(file, blocks, of_blocks), (scale_file, exponents, of_exponents)] {
        if tensor.shape != expected || !columns.is_multiple_of(GROUP) {
            return Err(Error::TensorShape {
                path: file.path().into(),
                tensor: tensor.name.clone(),
                expected: Shape::from(expected),
                found: Shape::from(tensor.shape.as_slice()),
            });
        }
        if tensor.dtype != Dtype::U8 {
            return Err(other_type(file, tensor));
        }
    }
    Ok(())
}

fn other_type(file: &WeightFile, tensor: &StoredTensor) -> Error {
    let (tensor, found) = (tensor.name.clone(), format!("{:?}", tensor.dtype));
    Error::TensorDtype { path: file.path().into(), tensor, found }
}

/// The values of a checked fp8 tensor in f32, as bytes: each value times its block's scale.
pub(crate) fn fp8<'a>(
    file: &WeightFile,
    weights: &StoredTensor,
    (scale_file, scales): (&WeightFile, &StoredTensor),
) -> Result<RawTensor<'a>> {
    let factors: Vec<f32> = match scales.dtype {
        Dtype::U8 | Dtype::F8_E8M0 => scale_file.bytes(scales).iter().map(|byte| e8m0(*byte)).collect(),
        _ => scale_file.read(scales, DType::F32, &candle_core::Device::Cpu)?.flatten_all()?.to_vec1()?,
    };
    let table: Vec<f32> = (0..=u8::MAX).map(e4m3).collect();
    let ((rows, columns), grid) = (last_two(&weights.shape), last_two(&scales.shape));
    let Some((block_rows, block_columns)) = block((rows, columns), grid) else {
        return Err(other_type(file, weights));
    };
    let bytes = file.bytes(weights);
    let mut values = Vec::with_capacity(bytes.len() * size_of::<f32>());
    for (row, bytes) in bytes.chunks_exact(columns.max(1)).enumerate() {
        let (matrix, row) = (row / rows.max(1), row % rows.max(1));
        let factors = &factors[(matrix * grid.0 + row / block_rows) * grid.1..][..grid.1];
        for (bytes, factor) in bytes.chunks(block_columns).zip(factors) {
            values.extend(bytes.iter().flat_map(|byte| (table[*byte as usize] * factor).to_le_bytes()));
        }
    }
    MappedBytes::new(bytes, file.map()).release_all();
    Ok(RawTensor { dtype: DType::F32, bytes: values.into() })
}

/// The values of a checked mxfp4 parameter in bf16, which holds them all, as bytes: (.., columns, rows).
pub(crate) fn mxfp4<'a>(
    file: &WeightFile,
    blocks: &StoredTensor,
    (scale_file, exponents): (&WeightFile, &StoredTensor),
) -> RawTensor<'a> {
    let (pairs, powers) = (file.bytes(blocks), scale_file.bytes(exponents));
    let (rows, groups) = last_two(&exponents.shape);
    let columns = groups * GROUP;
    let mut values = vec![0u8; powers.len() * GROUP * 2];
    let matrices = values.chunks_exact_mut((rows * columns * 2).max(1));
    let stored =
        powers.chunks_exact((rows * groups).max(1)).zip(pairs.chunks_exact((rows * columns / 2).max(1)));
    for (matrix, (powers, pairs)) in matrices.zip(stored) {
        for (at, (power, pairs)) in powers.iter().zip(pairs.chunks_exact(GROUP / 2)).enumerate() {
            let (row, first) = (at / groups, at % groups * GROUP);
            let power = e8m0(*power);
            for (at, number) in pairs.iter().flat_map(|pair| [pair & 15, pair >> 4]).enumerate() {
                let value = half::bf16::from_f32(E2M1[number as usize] * power);
                matrix[((first + at) * rows + row) * 2..][..2].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    MappedBytes::new(pairs, file.map()).release_all();
    RawTensor { dtype: DType::BF16, bytes: values.into() }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, path::Path};

    use candle_core::DType;
    use safetensors::{Dtype, serialize_to_file, tensor::TensorView};

    use super::{E2M1, Packing, block, check_fp8, check_mxfp4, check_quantisation, e4m3, e8m0, fp8, mxfp4};
    use crate::weights::WeightFile;

    #[test]
    fn numbers_of_a_few_bits_are_those_of_their_formats() {
        // The greatest, the least normal one, the least one, and one and a half.
        for (byte, expected) in
            [(0x7e, 448.0), (0x08, 0.015_625), (0x01, 0.001_953_125), (0x3c, 1.5), (0xbc, -1.5), (0x80, -0.0)]
        {
            assert_eq!(e4m3(byte).to_bits(), f32::to_bits(expected), "{byte:x}");
        }
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        assert_eq!([e8m0(127), e8m0(130), e8m0(120)], [1.0, 8.0, 2f32.powi(-7)]);
        assert_eq!((E2M1[3], E2M1[15]), (1.5, -6.0));
    }

    #[test]
    fn blocks_follow_from_the_number_of_scales() {
        assert_eq!(block((576, 7168), (5, 56)), Some((128, 128)));
        assert_eq!(block((576, 256), (1, 1)), Some((576, 256)));
        assert_eq!(block((576, 256), (576, 1)), Some((1, 256)));
        assert_eq!(block((576, 256), (5, 3)), None);
        assert_eq!(block((576, 256), (0, 3)), None);
    }

    fn file(folder: &Path, tensors: &[(&str, Dtype, &[usize], &[u8])]) -> WeightFile {
        let mut views = HashMap::new();
        for (name, dtype, shape, bytes) in tensors {
            views.insert((*name).to_owned(), TensorView::new(*dtype, shape.to_vec(), bytes).unwrap());
        }
        let path = folder.join("model.safetensors");
        serialize_to_file(views, None, &path).unwrap();
        WeightFile::open(&path, "weights").unwrap()
    }

    fn find<'a>(file: &'a WeightFile, name: &str) -> &'a super::StoredTensor {
        file.tensors().iter().find(|tensor| tensor.name == name).unwrap()
    }

    #[test]
    fn each_block_has_its_scale() {
        let folder = tempfile::tempdir().unwrap();
        // 130 rows of 130 ones: four blocks, of which three are not whole.
        let (ones, factors) = (vec![0x38; 130 * 130], [2f32, 3.0, 5.0, 7.0].map(f32::to_le_bytes).concat());
        let tensors = [
            ("w", Dtype::F8_E4M3, &[130, 130][..], &ones[..]),
            ("s", Dtype::F32, &[2, 2], &factors),
            ("short", Dtype::F32, &[1, 4], &factors),
        ];
        let file = file(folder.path(), &tensors);
        let (w, s) = (find(&file, "w"), find(&file, "s"));
        check_fp8(&file, w, (&file, s)).unwrap();
        let raw = fp8(&file, w, (&file, s)).unwrap();
        assert_eq!(raw.dtype, DType::F32);
        let at = |row: usize, column: usize| {
            f32::from_le_bytes(*raw.bytes[(row * 130 + column) * 4..].first_chunk().unwrap())
        };
        assert_eq!([at(127, 127), at(0, 128), at(128, 0), at(129, 129)], [2.0, 3.0, 5.0, 7.0]);
        let error = check_fp8(&file, w, (&file, find(&file, "short"))).unwrap_err().to_string();
        assert!(error.contains("short") && error.contains("[2, 2]"), "{error}");
        let error = check_fp8(&file, s, (&file, s)).unwrap_err().to_string();
        assert!(error.contains("`s`"), "{error}");
    }

    #[test]
    fn pairs_of_four_bits_are_unpacked_and_turned() {
        let folder = tempfile::tempdir().unwrap();
        // One expert of two rows of 32 columns: 1.5 and -6 in turn, times 2; then 0.5 and 4, times a quarter.
        let pairs = [[0xf3; 16], [0x61; 16]].concat();
        let tensors = [
            ("w_blocks", Dtype::U8, &[1, 2, 1, 16][..], &pairs[..]),
            ("w_scales", Dtype::U8, &[1, 2, 1], &[128, 125]),
        ];
        let file = file(folder.path(), &tensors);
        let (blocks, scales) = (find(&file, "w_blocks"), find(&file, "w_scales"));
        check_mxfp4(&file, blocks, (&file, scales), &[1, 32, 2]).unwrap();
        let raw = mxfp4(&file, blocks, (&file, scales));
        assert_eq!(raw.dtype, DType::BF16);
        let values: Vec<f32> = raw
            .bytes
            .chunks_exact(2)
            .map(|bytes| half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32())
            .collect();
        assert_eq!(values, [3.0, 0.125, -12.0, 1.0].repeat(16));
        for shape in [&[1, 64, 2][..], &[1, 32, 3], &[1, 31, 2]] {
            let error = check_mxfp4(&file, blocks, (&file, scales), shape).unwrap_err().to_string();
            assert!(error.contains("w_blocks"), "{error}");
        }
        assert_ne!(Packing::Fp8, Packing::Mxfp4);
    }

    #[test]
    fn other_methods_are_refused_by_name() {
        let check = |config: &str| {
            check_quantisation(Path::new("config.json"), &format!(r#"{{"quantization_config": {config}}}"#))
        };
        for known in [
            "null",
            r#"{"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}"#,
            r#"{"quant_method": "fp8", "weight_block_size": null, "activation_scheme": "static"}"#,
            r#"{"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}"#,
        ] {
            check(known).unwrap();
        }
        for (config, field, found) in [
            (r#"{"quant_method": "gptq", "bits": 4}"#, "quant_method", "`gptq`"),
            (r#"{"quant_method": "awq"}"#, "quant_method", "`awq`"),
            (r#"{"quant_method": "compressed-tensors"}"#, "quant_method", "`compressed-tensors`"),
            (r#"{"load_in_8bit": true}"#, "quant_method", "`bitsandbytes`"),
            ("{}", "quant_method", "`none`"),
            (r#"{"quant_method": "fp8", "weight_block_size": [64, 64]}"#, "weight_block_size", "[64,64]"),
            (r#"{"quant_method": "fp8", "expert_dtype": "fp4"}"#, "expert_dtype", "\"fp4\""),
        ] {
            let error = check(config).unwrap_err().to_string();
            let start = format!("config.json: field `quantization_config.{field}`: expected ");
            assert!(error.starts_with(&start) && error.ends_with(&format!("found {found}")), "{error}");
        }
        let error = check(r#"{"quant_method": "gptq"}"#).unwrap_err().to_string();
        assert!(error.contains("use the model's weights in bf16 or f16, or its GGUF file"), "{error}");
    }
}
