//! The settings of a `config.json`, checked and in the form that candle's models read.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sporran_checkpoint::{Error, Result, json::parse};

/// The most positions: tables of angles are made for all of them.
pub(super) const MOST_POSITIONS: usize = 1 << 22;
/// The most values of such a table.
const MOST_ANGLES: usize = 1 << 30;
/// The largest number in a config.
const MOST: u64 = i32::MAX as u64;

/// Sizes that must not be 0.
const SIZES: [&str; 10] = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "num_experts_per_tok",
    "moe_intermediate_size",
];

/// The names of sizes in older architectures, and those of others.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("n_embd", "hidden_size"),
    ("n_layer", "num_hidden_layers"),
    ("n_head", "num_attention_heads"),
    ("n_positions", "max_position_embeddings"),
];

/// The settings of a model.
pub(crate) struct Settings {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl Settings {
    /// Reads the text of a `config.json`. The angles' settings are put where older versions of `transformers` have them,
    /// which candle's models read.
    ///
    /// # Errors
    /// [`Error::Json`], and [`Error::Config`] for a size that no model has, and for angles that are stretched.
    pub(super) fn read(path: &Path, text: &str) -> Result<Self> {
        let mut settings = Self { path: path.into(), fields: parse(path, text)? };
        if let Some(found) = settings.fields.get("quantization_config").filter(|config| !config.is_null()) {
            let expected = "none with the engine `candle`; the engine `packed` reads `fp8` and `mxfp4`";
            let found = found.get("quant_method").unwrap_or(found);
            return Err(settings.wrong("quantization_config", expected, found));
        }
        for (old, new) in OTHER_NAMES {
            if let Some(value) = settings.fields.get(old).cloned() {
                settings.fields.entry(new).or_insert(value);
            }
        }
        settings.check_sizes()?;
        settings.place_angles()?;
        settings.check_rotated_part()?;
        Ok(settings)
    }

    /// Checks that the rotated part of a head is no longer than the head: its length sizes the table of angles.
    fn check_rotated_part(&self) -> Result<()> {
        const FIELD: &str = "partial_rotary_factor";
        let is_part = |value: &Value| value.as_f64().is_some_and(|part| part > 0.0 && part <= 1.0);
        match self.fields.get(FIELD).filter(|value| !value.is_null() && !is_part(value)) {
            Some(found) => Err(self.wrong(FIELD, "a number above 0, at most 1", found)),
            None => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<()> {
        let is_huge = |value: &Value| value.as_u64().is_some_and(|value| value > MOST);
        if let Some((field, value)) = self.fields.iter().find(|(_, value)| is_huge(value)) {
            return Err(self.wrong(field, &format!("at most {MOST}"), value));
        }
        // A model without experts needs no number of those that read a token.
        let is_needed =
            |field: &str| field != "num_experts_per_tok" || self.size("num_local_experts") != Some(0);
        if let Some(field) = SIZES.into_iter().find(|field| self.size(field) == Some(0) && is_needed(field)) {
            return Err(self.wrong(field, "at least 1", &Value::from(0)));
        }
        let heads = self.size("num_attention_heads").unwrap_or(1);
        let width = match (self.size("head_dim"), self.size("hidden_size")) {
            (Some(width), _) => width,
            (None, Some(hidden)) if !hidden.is_multiple_of(heads) => {
                let expected = format!("a divisor of hidden_size, {hidden}");
                return Err(self.wrong("num_attention_heads", &expected, &heads.into()));
            }
            (None, Some(hidden)) => hidden / heads,
            (None, None) => 1,
        };
        if !heads.is_multiple_of(self.size("num_key_value_heads").unwrap_or(1)) {
            let expected = format!("a divisor of num_attention_heads, {heads}");
            return Err(self.wrong("num_key_value_heads", &expected, &self.fields["num_key_value_heads"]));
        }
        self.check_angles(width)
    }

    /// Checks the number of positions, where heads have angles for `width` values.
    ///
    /// # Errors
    /// [`Error::Config`] where a table of angles would be too large.
    pub(super) fn check_angles(&self, width: usize) -> Result<()> {
        let most = MOST_POSITIONS.min(MOST_ANGLES / width.max(1));
        match self.size("max_position_embeddings").filter(|positions| *positions > most) {
            Some(positions) => {
                let expected = format!("at most {most} with heads of {width} values");
                Err(self.wrong("max_position_embeddings", &expected, &positions.into()))
            }
            None => Ok(()),
        }
    }

    /// Moves the fields of `rope_parameters`, and checks that angles are not stretched.
    fn place_angles(&mut self) -> Result<()> {
        let mut stretched = None;
        for field in ["rope_parameters", "rope_scaling"] {
            let Some(Value::Object(angles)) = self.fields.get(field).cloned() else { continue };
            if self.get("model_type") == Some(&"deepseek_v2".into()) && is_yarn(&angles) {
                stretched = Some(self.yarn(field, &angles)?);
                if let Some(theta) = angles.get("rope_theta") {
                    self.set_missing("rope_theta", theta.clone());
                }
                continue;
            }
            // Gemma 3 has two: of layers that see everything, and of others.
            let groups = [("full_attention", "rope_theta"), ("sliding_attention", "rope_local_base_freq")];
            let mut all = vec![(&angles, "rope_theta")];
            for (group, base) in groups {
                if let Some(Value::Object(angles)) = angles.get(group) {
                    all.push((angles, base));
                }
            }
            for (angles, base) in all {
                let kind = angles.get("rope_type").or_else(|| angles.get("type"));
                if let Some(kind) = kind.filter(|kind| **kind != "default" && !kind.is_null()) {
                    let field = format!("{field}.rope_type");
                    return Err(self.wrong(&field, "`default` with the engine `candle`", kind));
                }
                for (from, to) in [("rope_theta", base), ("partial_rotary_factor", "partial_rotary_factor")] {
                    if let Some(value) = angles.get(from) {
                        self.fields.entry(to).or_insert_with(|| value.clone());
                    }
                }
            }
        }
        self.fields.remove("rope_scaling");
        self.fields.extend(stretched.map(|angles| ("rope_scaling".to_owned(), angles)));
        Ok(())
    }

    /// The settings of YaRN as candle's DeepSeek V2 reads them, which has all of them.
    fn yarn(&self, field: &str, angles: &Map<String, Value>) -> Result<Value> {
        for (name, expected) in [("attention_factor", Value::Null), ("truncate", Value::Bool(true))] {
            if let Some(found) = angles.get(name).filter(|found| !found.is_null() && **found != expected) {
                let expected = format!("{expected} with the engine `candle`");
                return Err(self.wrong(&format!("{field}.{name}"), &expected, found));
            }
        }
        let mut kept = Map::from_iter([("type".to_owned(), "yarn".into())]);
        for name in [
            "factor",
            "original_max_position_embeddings",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
        ] {
            let found = angles.get(name).unwrap_or(&Value::Null);
            if found.as_f64().is_none_or(|found| found <= 0.0) {
                return Err(self.wrong(&format!("{field}.{name}"), "a number above 0", found));
            }
            kept.insert(name.to_owned(), found.clone());
        }
        Ok(kept.into())
    }

    /// Checks that there are no more layers than tensors.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub(super) fn check_layers(&self, tensors: usize) -> Result<()> {
        match self.size("num_hidden_layers").filter(|layers| *layers > tensors) {
            Some(layers) => {
                let expected = format!("no more layers than the weights have tensors, {tensors}");
                Err(self.wrong("num_hidden_layers", &expected, &layers.into()))
            }
            None => Ok(()),
        }
    }

    /// Checks a setting that candle's model does not read: where it is set, it must be the one that the model computes with.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub(super) fn must_be(&self, field: &str, expected: &Value) -> Result<()> {
        let same = |found: &Value| {
            found == expected || (found.as_f64().is_some() && found.as_f64() == expected.as_f64())
        };
        match self.fields.get(field).filter(|found| !found.is_null() && !same(found)) {
            Some(found) => Err(self.wrong(field, &format!("{expected} with the engine `candle`"), found)),
            None => Ok(()),
        }
    }

    /// As [`must_be`](Self::must_be), where the setting must be there, because the default of `transformers` differs.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub(super) fn must_say(&self, field: &str, expected: &Value) -> Result<()> {
        if self.get(field).is_none() {
            let expected = format!("{expected} with the engine `candle`");
            return Err(self.wrong(field, &expected, &Value::Null));
        }
        self.must_be(field, expected)
    }

    /// The error for a field.
    pub(super) fn wrong(&self, field: &str, expected: &str, found: &Value) -> Error {
        let found = match found {
            Value::Null => "none".to_owned(),
            found => format!("`{}`", found.to_string().trim_matches('"')),
        };
        Error::Config { path: self.path.clone(), field: field.into(), expected: expected.into(), found }
    }

    /// A field that is set.
    pub(super) fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// Sets a field.
    pub(super) fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.fields.insert(field.into(), value.into());
    }

    /// Sets a field that is not set.
    pub(super) fn set_missing(&mut self, field: &str, value: impl Into<Value>) {
        if self.get(field).is_none() {
            self.set(field, value);
        }
    }

    /// Removes a field.
    pub(super) fn remove(&mut self, field: &str) {
        self.fields.remove(field);
    }

    /// A size that is set.
    pub(super) fn size(&self, field: &str) -> Option<usize> {
        self.get(field)?.as_u64().and_then(|size| usize::try_from(size).ok())
    }

    /// A size that must be set.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub(super) fn needed(&self, field: &str) -> Result<usize> {
        self.size(field)
            .ok_or_else(|| self.wrong(field, "a size", self.fields.get(field).unwrap_or(&Value::Null)))
    }

    /// Whether a setting is there and false.
    pub(super) fn is_off(&self, field: &str) -> bool {
        self.get(field) == Some(&Value::Bool(false))
    }

    /// The longest sequence. Candle's models treat windows of attention otherwise than `transformers`, so a sequence ends at
    /// the window.
    ///
    /// # Errors
    /// [`Error::Config`] where there are no positions.
    pub(super) fn max_length(&self) -> Result<usize> {
        let positions = self.needed("max_position_embeddings")?;
        let window = self.size("sliding_window").filter(|window| *window > 0);
        Ok(window.filter(|_| !self.is_off("use_sliding_window")).map_or(positions, |it| it.min(positions)))
    }

    /// The settings as a model of candle's reads them.
    ///
    /// # Errors
    /// [`Error::Json`] with the field.
    pub(super) fn typed<C: DeserializeOwned>(&self) -> Result<C> {
        parse(&self.path, &Value::Object(self.fields.clone()).to_string())
    }
}

/// Whether angles are stretched by YaRN.
fn is_yarn(angles: &Map<String, Value>) -> bool {
    angles.get("rope_type").or_else(|| angles.get("type")) == Some(&"yarn".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings> {
        Settings::read(Path::new("config.json"), text)
    }

    #[test]
    fn sizes_that_no_model_has_are_errors_with_their_field() {
        for (text, expected) in [
            (r#"{"vocab_size": 4294967296}"#, "field `vocab_size`: expected at most 2147483647"),
            (r#"{"num_experts_per_tok": 0}"#, "field `num_experts_per_tok`: expected at least 1, found `0`"),
            (r#"{"head_dim": 0}"#, "field `head_dim`: expected at least 1, found `0`"),
            (
                r#"{"hidden_size": 10, "num_attention_heads": 4}"#,
                "field `num_attention_heads`: expected a divisor of hidden_size, 10, found `4`",
            ),
            (
                r#"{"num_attention_heads": 4, "num_key_value_heads": 3}"#,
                "field `num_key_value_heads`: expected a divisor of num_attention_heads, 4, found `3`",
            ),
            (
                r#"{"head_dim": 64, "max_position_embeddings": 2000000000}"#,
                "field `max_position_embeddings`: expected at most 4194304 with heads of 64 values",
            ),
            (
                r#"{"rope_parameters": {"partial_rotary_factor": 2147483648}}"#,
                "field `partial_rotary_factor`: expected a number above 0, at most 1, found `2147483648`",
            ),
            (
                r#"{"rope_parameters": {"rope_type": "yarn"}}"#,
                "field `rope_parameters.rope_type`: expected `default` with the engine `candle`, found `yarn`",
            ),
            (
                r#"{"rope_scaling": {"type": "linear", "factor": 2}}"#,
                "field `rope_scaling.rope_type`: expected `default`",
            ),
        ] {
            let error = read(text).err().unwrap().to_string();
            assert!(error.starts_with("config.json: ") && error.contains(expected), "{error}");
        }
        assert!(read(r#"{"num_experts_per_tok": 0, "num_local_experts": 0}"#).is_ok());
        let layers = read(r#"{"num_hidden_layers": 9}"#).unwrap();
        assert!(layers.check_layers(9).is_ok() && layers.check_layers(8).is_err());
    }

    #[test]
    fn angles_are_found_in_both_places_and_sequences_end_at_a_window() {
        let new = read(r#"{"rope_parameters": {"rope_theta": 7.0, "partial_rotary_factor": 0.5}}"#).unwrap();
        assert_eq!(
            (new.get("rope_theta"), new.get("partial_rotary_factor")),
            (Some(&7.0.into()), Some(&0.5.into()))
        );
        let both = r#"{"rope_parameters": {"full_attention": {"rope_theta": 7.0}, "sliding_attention": {"rope_theta": 3.0}}}"#;
        let both = read(both).unwrap();
        assert_eq!(
            (both.get("rope_theta"), both.get("rope_local_base_freq")),
            (Some(&7.0.into()), Some(&3.0.into()))
        );
        let length = |text: &str| read(text).unwrap().max_length();
        assert_eq!(length(r#"{"max_position_embeddings": 64, "sliding_window": 16}"#).unwrap(), 16);
        assert_eq!(length(r#"{"max_position_embeddings": 64, "sliding_window": null}"#).unwrap(), 64);
        let unused = r#"{"max_position_embeddings": 64, "sliding_window": 16, "use_sliding_window": false}"#;
        assert_eq!(length(unused).unwrap(), 64);
        assert!(length("{}").is_err());
    }

    #[test]
    fn a_setting_that_a_model_does_not_read_must_be_the_one_that_it_computes_with() {
        let settings = read(r#"{"multiplier": 12, "scale": 1.0, "none": null}"#).unwrap();
        assert!(settings.must_be("scale", &1.into()).is_ok() && settings.must_be("none", &1.into()).is_ok());
        let error = settings.must_be("multiplier", &1.into()).unwrap_err().to_string();
        assert!(
            error.contains("field `multiplier`: expected 1 with the engine `candle`, found `12`"),
            "{error}"
        );
        assert!(settings.must_say("none", &1.into()).is_err());
    }
}
