//! The training options of a linear model. The documentation of this type is the manual of the config file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;

/// The training options of a linear model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinearTraining {
    /// Weights of a property; hashed features share them.
    #[schemars(range(min = 1))]
    pub buckets: u32,
    /// The number of epochs.
    #[schemars(range(min = 1), extend("x-unit" = "epochs"))]
    pub epochs: usize,
    /// The learning rate of AdaGrad (Duchi et al., 2011).
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub learning_rate: f32,
    /// The weight decay at each update, relative to the learning rate.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub decay: f32,
}

impl Default for LinearTraining {
    fn default() -> Self {
        Self { buckets: 1 << 17, epochs: 12, learning_rate: 0.5, decay: 1e-4 }
    }
}

impl LinearTraining {
    /// Reports wrong values. `key` is the path of the table.
    pub fn check(&self, key: &str, document: &mut Document<'_>) {
        if self.buckets == 0 || self.epochs == 0 {
            document.report_key(key, "expected `buckets` and `epochs` of at least 1");
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite() && (0.0..1.0).contains(&self.decay)) {
            let message = "expected a `learning-rate` above 0 and a `decay` from 0 to below 1";
            document.report_key(key, message);
        }
    }
}
