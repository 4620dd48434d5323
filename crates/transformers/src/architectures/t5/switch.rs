//! The feed-forward parts of Switch Transformers (Fedus et al. 2022): each token is read by the expert with the best score, as
//! long as that has room.

use candle_core::{D, Tensor};
use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::{config::T5Config, model::FeedForward, sizes::SwitchSizes};
use crate::{
    architectures::wrong::wrong,
    layers::{Linear, softmax, values},
    mode::Mode,
};

/// Experts, of which each token is read by one.
#[derive(Debug, Clone)]
pub(super) struct Switch {
    sizes: SwitchSizes,
    router: Linear,
    experts: Vec<FeedForward>,
}

impl Switch {
    /// The experts whose tensors are under `vb`.
    pub(super) fn new(config: &T5Config, sizes: SwitchSizes, vb: &VarBuilder) -> Result<Self> {
        let std = config.initializer_factor;
        let (width, at) = (config.d_model, vb.pp("router.classifier"));
        let router = match sizes.has_bias {
            true => Linear::with_bias(width, sizes.count, std, &at)?,
            false => Linear::new(width, sizes.count, std, &at)?,
        };
        let expert = |at: usize| FeedForward::new(config, &vb.pp(format!("experts.expert_{at}")));
        Ok(Self { sizes, router, experts: (0..sizes.count).map(expert).collect::<Result<_>>()? })
    }

    /// States (r, t, d) to what the part adds to them. Tokens of a sequence are read in their order.
    pub(super) fn forward(&self, xs: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        if mode.is_training() {
            // Training would need the noise of the scores and the losses that spread tokens over experts.
            let expected = "another than `switch_transformers` in training";
            return Err(wrong("model_type", expected, "`switch_transformers`"));
        }
        let (rows, length, width) = xs.dims3()?;
        let flat = xs.reshape((rows * length, width))?;
        let scores = self.router.forward(&flat)?;
        let weights = softmax(&scores, mode)?.max(D::Minus1)?;
        let mut tokens: Vec<Vec<u32>> = vec![Vec::new(); self.sizes.count];
        for (row, scores) in values(&scores)?.chunks_exact((length * self.sizes.count).max(1)).enumerate() {
            for (at, routed) in self.sizes.route(scores).into_iter().enumerate() {
                if let Some((expert, _)) = routed {
                    tokens[expert].push((row * length + at) as u32);
                }
            }
        }
        let mut out = flat.zeros_like()?;
        for (expert, tokens) in self.experts.iter().zip(tokens) {
            if tokens.is_empty() {
                continue;
            }
            let count = tokens.len();
            let tokens = Tensor::from_vec(tokens, count, xs.device())?;
            let read = expert.forward(&flat.index_select(&tokens, 0)?, mode)?;
            let weights = weights.index_select(&tokens, 0)?.reshape((count, 1))?;
            out = out.index_add(&tokens, &read.broadcast_mul(&weights)?, 0)?;
        }
        Ok(out.reshape((rows, length, width))?)
    }
}
