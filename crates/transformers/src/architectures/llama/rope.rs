//! Rotary positions (Su et al. 2021) and the ways in which they are stretched for longer sequences.

use std::{borrow::Cow, f64::consts::TAU};

use serde::{Deserialize, Serialize};

/// How positions turn queries and keys, as a `config.json` says it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RopeParameters {
    /// The base of the angles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// The kind: `default`, `linear`, `dynamic`, `yarn`, `llama3`, `longrope` or `proportional`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_type: Option<String>,
    /// The kind, in older files.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub old_type: Option<String>,
    /// How many times longer sequences may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// The longest sequence of the first training, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_max_position_embeddings: Option<usize>,
    /// The base of the angles grows with it, for every length (`dynamic` of Hunyuan).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// The factor of cosines and sines (`yarn`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_factor: Option<f64>,
    /// Pairs with more turns than this are not stretched (`yarn`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta_fast: Option<f64>,
    /// Pairs with fewer turns than this are stretched by the whole factor (`yarn`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta_slow: Option<f64>,
    /// A factor of the logarithm that makes `attention_factor` (`yarn`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mscale: Option<f64>,
    /// The same below the fraction line (`yarn`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mscale_all_dim: Option<f64>,
    /// Whether the bounds between stretched and other pairs are whole numbers (`yarn`); they are where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncate: Option<bool>,
    /// The wavelength, as a part of the original length, from which on pairs are stretched (`llama3`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_freq_factor: Option<f64>,
    /// The wavelength, as a part of the original length, below which pairs are not stretched (`llama3`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_freq_factor: Option<f64>,
    /// The divisor of each pair's step in sequences of at most the original length (`longrope`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_factor: Option<Vec<f64>>,
    /// The same in longer sequences (`longrope`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_factor: Option<Vec<f64>>,
    /// The factor of cosines and sines in sequences of at most the original length (Phi 3.5 MoE).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_mscale: Option<f64>,
    /// The same in longer sequences (Phi 3.5 MoE).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_mscale: Option<f64>,
    /// How much queries grow with the logarithm of their positions (Ministral 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llama_4_scaling_beta: Option<f64>,
    /// The part of a head that is turned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_rotary_factor: Option<f64>,
    /// The settings of layers that attend to everything, where layers differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_attention: Option<Box<RopeParameters>>,
    /// The settings of layers that attend to a sliding window, where layers differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sliding_attention: Option<Box<RopeParameters>>,
}

/// What else decides the angles of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RopeContext {
    /// The base of the angles.
    pub(crate) theta: f64,
    /// The width of the part of a head that is turned.
    pub(crate) width: usize,
    /// The longest sequence of the model, in tokens.
    pub(crate) longest: usize,
    /// That of its first training, where the config names one for the whole model.
    pub(crate) original: Option<usize>,
    /// The growth of the base of the kind `dynamic`, where it does not follow the length.
    pub(crate) alpha: Option<f64>,
}

/// A setting that cannot be used: its field, what is expected, and what was found.
pub(crate) type Refusal = (&'static str, String, String);

/// The angles by which positions turn the pairs of queries and keys.
#[derive(Debug, Clone)]
pub(crate) struct Rope {
    /// The factor from a position to the angle of each pair.
    steps: Vec<f32>,
    /// The factor of cosines and sines.
    scale: f32,
    growth: Option<Growth>,
}

/// How angles depend on the length of the sequence.
#[derive(Debug, Clone)]
enum Growth {
    /// Their base grows with it (`dynamic`).
    Base {
        base: f32,
        /// 1, or -1 where angles are negative.
        sign: f32,
        factor: f32,
        /// The length from which on angles change.
        longest: usize,
        width: usize,
    },
    /// Longer sequences than the original length have other ones (`longrope`).
    Long { steps: Vec<f32>, scale: f32, original: usize },
}

/// `base^(-2 i / width)` for pair `i`. In f32 as `transformers` has it, so that far positions have the same angles.
fn steps(base: f32, width: usize) -> Vec<f32> {
    (0..width / 2).map(|pair| 1.0 / base.powf((2 * pair) as f32 / width as f32)).collect()
}

/// The kind of angles of which those of a head's last pairs are 0.
const PROPORTIONAL: &str = "proportional";

/// The steps of pairs, of which the first part turns (Gemma 4).
fn proportional(parameters: &RopeParameters, mut steps: Vec<f32>) -> std::result::Result<Vec<f32>, Refusal> {
    let part = parameters.partial_rotary_factor.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&part) {
        return Err(("partial_rotary_factor", "0 to 1".into(), part.to_string()));
    }
    let factor = above_zero("factor", Some(parameters.factor.unwrap_or(1.0)))? as f32;
    let turned = (part * (2 * steps.len()) as f64 / 2.0) as usize;
    steps.iter_mut().for_each(|step| *step /= factor);
    steps[turned..].fill(0.0);
    Ok(steps)
}

impl RopeParameters {
    /// The kind of angles.
    fn kind(&self) -> &str {
        self.rope_type.as_deref().or(self.old_type.as_deref()).unwrap_or("default")
    }

    /// Whether the angles of a head's last pairs are 0.
    pub(super) fn is_proportional(&self) -> bool {
        self.kind() == PROPORTIONAL
    }
}

impl Rope {
    /// The angles that `parameters` ask for.
    pub(crate) fn new(
        parameters: &RopeParameters,
        context: RopeContext,
    ) -> std::result::Result<Self, Refusal> {
        let RopeContext { theta, width, longest, original, alpha } = context;
        let plain = steps(theta as f32, width);
        let kind = parameters.kind();
        let original = original.or(parameters.original_max_position_embeddings).unwrap_or(longest) as f64;
        let rope = |steps, scale, growth| Ok(Self { steps, scale, growth });
        match kind {
            "default" => rope(plain, 1.0, None),
            "linear" => {
                let factor = above_zero("factor", parameters.factor)? as f32;
                rope(plain.iter().map(|step| step / factor).collect(), 1.0, None)
            }
            "dynamic" => {
                if width < 4 {
                    return Err(("head_dim", "at least 4 for `dynamic`".into(), width.to_string()));
                }
                if alpha.is_some() {
                    let grown = above_zero("alpha", alpha)?.powf(width as f64 / (width - 2) as f64);
                    return rope(steps((theta * grown) as f32, width), 1.0, None);
                }
                let factor = above_zero("factor", parameters.factor)? as f32;
                rope(plain, 1.0, Some(Growth::Base { base: theta as f32, sign: 1.0, factor, longest, width }))
            }
            "llama3" => {
                let factor = above_zero("factor", parameters.factor)? as f32;
                let low = above_zero("low_freq_factor", parameters.low_freq_factor)?;
                let high = above_zero("high_freq_factor", parameters.high_freq_factor)?;
                if high <= low {
                    let expected = format!("more than low_freq_factor, {low}");
                    return Err(("high_freq_factor", expected, high.to_string()));
                }
                let stretched = |step: &f32| {
                    let wavelength = TAU as f32 / step;
                    if f64::from(wavelength) < f64::from((original / high) as f32) {
                        return *step;
                    }
                    if f64::from(wavelength) > f64::from((original / low) as f32) {
                        return step / factor;
                    }
                    let smooth = (original as f32 / wavelength - low as f32) / (high - low) as f32;
                    (1.0 - smooth) * step / factor + smooth * step
                };
                rope(plain.iter().map(stretched).collect(), 1.0, None)
            }
            "yarn" => Self::yarn(parameters, plain, context, original),
            "longrope" => Self::long(parameters, context, original),
            PROPORTIONAL => rope(proportional(parameters, plain)?, 1.0, None),
            other => {
                let expected = "the rope type `default`, `linear`, `dynamic`, `yarn`, `llama3`, `longrope` or \
                                `proportional`";
                Err(("rope_type", expected.into(), format!("`{other}`")))
            }
        }
    }

    /// YaRN (Peng et al. 2023): pairs with many turns stay, those with few are stretched, and scores are scaled.
    fn yarn(
        parameters: &RopeParameters,
        plain: Vec<f32>,
        context: RopeContext,
        original: f64,
    ) -> std::result::Result<Self, Refusal> {
        let RopeContext { theta, width, longest, .. } = context;
        let factor = match parameters.factor {
            None => longest as f64 / original,
            given => above_zero("factor", given)?,
        };
        if theta <= 1.0 {
            return Err(("rope_theta", "more than 1 for `yarn`".into(), theta.to_string()));
        }
        let grown = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
        let set = |scale: Option<f64>| scale.filter(|scale| *scale != 0.0);
        let scale =
            match (parameters.attention_factor, set(parameters.mscale), set(parameters.mscale_all_dim)) {
                (Some(own), ..) => own,
                (None, Some(above), Some(below)) => grown(above) / grown(below),
                _ => grown(1.0),
            };
        // The pair that turns so often within the original length.
        let pair = |turns: f64| width as f64 * (original / (turns * TAU)).ln() / (2.0 * theta.ln());
        let low = pair(set(parameters.beta_fast).unwrap_or(32.0));
        let high = pair(set(parameters.beta_slow).unwrap_or(1.0));
        let (low, high) =
            if parameters.truncate.unwrap_or(true) { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, mut high) = (low.max(0.0), high.min(width as f64 - 1.0));
        if low == high {
            high += 0.001;
        }
        let stretched = |(pair, step): (usize, f32)| {
            let kept = 1.0 - ((pair as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
            step / factor as f32 * (1.0 - kept) + step * kept
        };
        let steps = plain.into_iter().enumerate().map(stretched).collect();
        Ok(Self { steps, scale: scale as f32, growth: None })
    }

    /// LongRoPE (Ding et al. 2024): the step of each pair has a divisor for short sequences and another for long ones.
    fn long(
        parameters: &RopeParameters,
        context: RopeContext,
        original: f64,
    ) -> std::result::Result<Self, Refusal> {
        let RopeContext { theta, width, longest, .. } = context;
        if original < 2.0 {
            return Err(("original_max_position_embeddings", "at least 2".into(), original.to_string()));
        }
        let divided = |field: &'static str, divisors: &Option<Vec<f64>>| {
            let Some(divisors) = divisors else {
                return Err((field, format!("a number for each of {} pairs", width / 2), "none".into()));
            };
            if divisors.len() != width / 2 {
                let expected = format!("a number for each of {} pairs", width / 2);
                return Err((field, expected, divisors.len().to_string()));
            }
            let step = |(pair, divisor): (usize, &f64)| {
                let divisor = above_zero(field, Some(*divisor))? as f32;
                Ok(1.0 / (divisor * (theta as f32).powf((2 * pair) as f32 / width as f32)))
            };
            divisors.iter().enumerate().map(step).collect::<std::result::Result<Vec<f32>, Refusal>>()
        };
        let factor = match parameters.factor {
            None => longest as f64 / original,
            given => above_zero("factor", given)?,
        };
        let grown = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() };
        let scale = match parameters.attention_factor {
            None => grown,
            own => above_zero("attention_factor", own)?,
        };
        let of = |field, own: Option<f64>| own.map_or(Ok(scale), |own| above_zero(field, Some(own)));
        let long = Growth::Long {
            steps: divided("long_factor", &parameters.long_factor)?,
            scale: of("long_mscale", parameters.long_mscale)? as f32,
            original: original as usize,
        };
        Ok(Self {
            steps: divided("short_factor", &parameters.short_factor)?,
            scale: of("short_mscale", parameters.short_mscale)? as f32,
            growth: Some(long),
        })
    }

    /// The same with the step of each pair divided.
    pub(crate) fn divided(mut self, divisors: &[f32]) -> Self {
        self.steps.iter_mut().zip(divisors).for_each(|(step, divisor)| *step /= divisor);
        self
    }

    /// The same the other way round.
    pub(crate) fn reversed(mut self) -> Self {
        let negate = |steps: &mut Vec<f32>| steps.iter_mut().for_each(|step| *step = -*step);
        negate(&mut self.steps);
        match &mut self.growth {
            Some(Growth::Base { sign, .. }) => *sign = -*sign,
            Some(Growth::Long { steps, .. }) => negate(steps),
            None => {}
        }
        self
    }

    /// The number of pairs that are turned.
    pub(crate) fn pairs(&self) -> usize {
        self.steps.len()
    }

    /// Whether angles depend on the length of the sequence.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.growth.is_some()
    }

    /// The length of the longest sequence with the angles of short ones, where longer ones have others.
    pub(crate) fn last_short(&self) -> Option<usize> {
        match &self.growth {
            Some(Growth::Long { original, .. }) => Some(*original),
            _ => None,
        }
    }

    /// The factor from a position to the angle of each pair, in a sequence of `length` tokens, and the factor of cosines and
    /// sines.
    pub(crate) fn steps(&self, length: usize) -> (Cow<'_, [f32]>, f32) {
        match &self.growth {
            // The base grows with the length ("NTK-aware" scaling).
            Some(Growth::Base { base, sign, factor, longest, width }) if length > *longest => {
                let grown = factor * length as f32 / *longest as f32 - (factor - 1.0);
                let base = base * grown.powf(*width as f32 / (width - 2) as f32);
                let steps: Vec<f32> = steps(base, *width).iter().map(|step| sign * step).collect();
                (steps.into(), self.scale)
            }
            Some(Growth::Long { steps, scale, original }) if length > *original => {
                (steps.as_slice().into(), *scale)
            }
            _ => (self.steps.as_slice().into(), self.scale),
        }
    }

    /// The cosines and sines of `position` in a sequence of `length` tokens, for each pair, appended to `out`.
    pub(crate) fn turns(&self, position: usize, length: usize, out: &mut (Vec<f32>, Vec<f32>)) {
        let (steps, scale) = self.steps(length);
        for step in steps.iter() {
            let angle = position as f32 * step;
            out.0.push(angle.cos() * scale);
            out.1.push(angle.sin() * scale);
        }
    }
}

fn above_zero(field: &'static str, value: Option<f64>) -> std::result::Result<f64, Refusal> {
    match value {
        Some(value) if value > 0.0 && value.is_finite() => Ok(value),
        other => {
            let found = other.map_or_else(|| "none".into(), |value| value.to_string());
            Err((field, "a number above 0".into(), found))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rope, RopeContext, RopeParameters};

    fn context(width: usize) -> RopeContext {
        RopeContext { theta: 10_000.0, width, longest: 16, original: None, alpha: None }
    }

    fn of(kind: &str) -> RopeParameters {
        RopeParameters { rope_type: Some(kind.into()), factor: Some(4.0), ..RopeParameters::default() }
    }

    #[test]
    fn linear_scaling_divides_each_step() {
        let rope = Rope::new(&of("linear"), context(4)).unwrap();
        // 10000^0 / 4 and 10000^(-2/4) / 4.
        assert_eq!(rope.steps(100).0.as_ref(), [0.25, 0.0025]);
        let old = RopeParameters { rope_type: None, old_type: Some("linear".into()), ..of("linear") };
        assert_eq!(Rope::new(&old, context(4)).unwrap().steps(1).0.as_ref(), [0.25, 0.0025]);
    }

    #[test]
    fn dynamic_scaling_begins_beyond_the_longest_sequence() {
        let rope = Rope::new(&of("dynamic"), context(4)).unwrap();
        assert_eq!(rope.steps(16).0.as_ref(), [1.0, 0.01]);
        // At 32 tokens the base grows by (4 * 2 - 3)^(4 / 2) = 25: 250000^(-1/2) = 1 / 500.
        let (steps, _) = rope.steps(32);
        assert_eq!(steps[0], 1.0);
        assert!((steps[1] - 0.002).abs() < 1e-9, "{steps:?}");
    }

    #[test]
    fn reversed_angles_are_negative_at_every_length() {
        for kind in ["linear", "dynamic"] {
            let rope = Rope::new(&of(kind), context(4)).unwrap();
            for length in [1, 32] {
                let negative: Vec<f32> = rope.steps(length).0.iter().map(|step| -step).collect();
                assert_eq!(rope.clone().reversed().steps(length).0.as_ref(), negative, "{kind}, {length}");
            }
        }
    }

    #[test]
    fn alpha_makes_the_base_greater_for_every_length() {
        let context = RopeContext { alpha: Some(5.0), ..context(4) };
        let rope = Rope::new(&RopeParameters { factor: None, ..of("dynamic") }, context).unwrap();
        // The base is 10000 * 5^(4 / 2) = 250000.
        for length in [1, 16, 32] {
            let (steps, _) = rope.steps(length);
            assert!(steps[0] == 1.0 && (steps[1] - 0.002).abs() < 1e-9, "{steps:?}");
        }
        let wrong = RopeContext { alpha: Some(-1.0), ..context };
        assert_eq!(Rope::new(&of("dynamic"), wrong).unwrap_err().0, "alpha");
    }

    #[test]
    fn llama_3_keeps_fast_pairs_and_stretches_slow_ones() {
        let parameters = RopeParameters {
            low_freq_factor: Some(1.0),
            high_freq_factor: Some(4.0),
            original_max_position_embeddings: Some(1000),
            ..of("llama3")
        };
        let rope = Rope::new(&parameters, context(8)).unwrap();
        let (steps, _) = rope.steps(1);
        // Wavelengths of 2 pi, 20 pi, 200 pi and 2000 pi tokens: below 250 none changes, above 1000 all do.
        assert_eq!((steps[0], steps[3]), (1.0, 0.001 / 4.0));
        assert!((steps[1] - 0.1).abs() < 1e-8);
        // Between: s = (1000 / (200 pi) - 1) / 3 = 0.197183, and 0.01 ((1 - s) / 4 + s).
        assert!((steps[2] - 0.003_978_87).abs() < 1e-8, "{steps:?}");
        let wrong = RopeParameters { high_freq_factor: Some(1.0), ..parameters };
        assert_eq!(Rope::new(&wrong, context(8)).unwrap_err().0, "high_freq_factor");
    }

    #[test]
    fn yarn_stretches_slow_pairs_and_scales_cosines() {
        let parameters = RopeParameters { original_max_position_embeddings: Some(1000), ..of("yarn") };
        let rope = Rope::new(&parameters, context(8)).unwrap();
        // 32 turns at pair 8 ln(1000 / 64 pi) / (2 ln 10000) = 0.697 -> 0; 1 turn at 2.202 -> 3. So the pairs keep
        // 1, 2/3, 1/3 and 0 of their steps, and the rest is a quarter.
        let (steps, scale) = rope.steps(1);
        for (step, expected) in steps.iter().zip([1.0, 0.1 * 0.75, 0.01 * 0.5, 0.001 * 0.25]) {
            assert!((step / expected - 1.0).abs() < 1e-5, "{steps:?}");
        }
        // 0.1 ln 4 + 1
        assert!((scale - 1.138_629_4).abs() < 1e-6);
        let own = RopeParameters { attention_factor: Some(2.0), ..parameters };
        assert_eq!(Rope::new(&own, context(8)).unwrap().steps(1).1, 2.0);
    }

    #[test]
    fn long_sequences_have_divisors_of_their_own() {
        let parameters = RopeParameters {
            factor: None,
            original_max_position_embeddings: Some(4),
            short_factor: Some(vec![1.0, 2.0]),
            long_factor: Some(vec![4.0, 8.0]),
            ..of("longrope")
        };
        let rope = Rope::new(&parameters, context(4)).unwrap();
        // 10000^0 and 10000^(-2/4), divided; the factor is 16 / 4, and the root of 1 + ln 4 / ln 4 is that of 2.
        let scale = 2f32.sqrt();
        for (length, expected) in [(4, [1.0, 0.005]), (5, [0.25, 0.001_25])] {
            let (steps, found) = rope.steps(length);
            assert_eq!((steps.as_ref(), found), (&expected[..], scale), "{length}");
        }
        let own = RopeParameters { short_mscale: Some(3.0), long_mscale: Some(5.0), ..parameters.clone() };
        let rope = Rope::new(&own, context(4)).unwrap();
        assert_eq!((rope.steps(4).1, rope.steps(5).1), (3.0, 5.0));
        for (field, wrong) in [
            ("long_factor", RopeParameters { long_factor: Some(vec![1.0]), ..parameters.clone() }),
            ("short_factor", RopeParameters { short_factor: Some(vec![1.0, 0.0]), ..parameters.clone() }),
            ("short_factor", RopeParameters { short_factor: None, ..parameters.clone() }),
            ("attention_factor", RopeParameters { attention_factor: Some(-1.0), ..parameters.clone() }),
            (
                "original_max_position_embeddings",
                RopeParameters { original_max_position_embeddings: Some(1), ..parameters },
            ),
        ] {
            assert_eq!(Rope::new(&wrong, context(4)).unwrap_err().0, field);
        }
    }

    #[test]
    fn the_last_pairs_of_proportional_angles_do_not_turn() {
        let parameters = RopeParameters { partial_rotary_factor: Some(0.5), ..of("proportional") };
        let rope = Rope::new(&parameters, context(8)).unwrap();
        // 10000^(-2 i / 8), divided by the factor 4.
        assert_eq!(rope.steps(1).0.as_ref(), [0.25, 0.025, 0.0, 0.0]);
        let wrong = RopeParameters { partial_rotary_factor: Some(1.5), ..parameters };
        assert_eq!(Rope::new(&wrong, context(8)).unwrap_err().0, "partial_rotary_factor");
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        let (field, _, found) = Rope::new(&of("axial"), context(8)).unwrap_err();
        assert_eq!((field, found.as_str()), ("rope_type", "`axial`"));
        for kind in ["linear", "dynamic", "llama3"] {
            let none = RopeParameters { factor: None, ..of(kind) };
            assert_eq!(Rope::new(&none, context(8)).unwrap_err().0, "factor", "{kind}");
        }
    }
}
