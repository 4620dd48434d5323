//! The choice of a generator that fits a machine.

/// A generator of the Hugging Face Hub with a permissive licence, for a machine without weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuggestedModel {
    /// The id on the hub, for `sporran models pull`.
    pub id: &'static str,
    /// The number of its parameters, in millions.
    pub millions: u64,
}

impl SuggestedModel {
    /// The name of the model in the folder of imported models.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.id.rsplit('/').next().unwrap_or(self.id)
    }

    /// The memory that it needs, in bytes: its weights in 16 bits, as they are published, and a quarter for caches and
    /// buffers.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.millions * 1_000_000 * 5 / 2
    }
}

/// The generators, by size. All have the licence Apache 2.0.
const MODELS: [SuggestedModel; 6] = [
    SuggestedModel { id: "HuggingFaceTB/SmolLM2-135M-Instruct", millions: 135 },
    SuggestedModel { id: "HuggingFaceTB/SmolLM2-360M-Instruct", millions: 362 },
    SuggestedModel { id: "Qwen/Qwen2.5-0.5B-Instruct", millions: 494 },
    SuggestedModel { id: "Qwen/Qwen2.5-1.5B-Instruct", millions: 1544 },
    SuggestedModel { id: "Qwen/Qwen3-4B-Instruct-2507", millions: 4022 },
    SuggestedModel { id: "Qwen/Qwen2.5-7B-Instruct", millions: 7616 },
];

/// The largest number of parameters for each core, in millions. A core reads a prompt of 1,000 tokens with such a model in
/// about 30 seconds: 2 operations for each parameter and token, at 30 billion operations a second.
const MILLIONS_PER_CORE: u64 = 450;

/// The largest generator that fits into `memory` bytes and is not too slow for `cores`; `None` if even the smallest one does
/// not fit.
#[must_use]
pub fn suggested_model(memory: u64, cores: usize) -> Option<SuggestedModel> {
    let most = MILLIONS_PER_CORE.saturating_mul(cores as u64);
    MODELS.into_iter().rfind(|model| model.memory() <= memory && model.millions <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cores_limit_the_model() {
        let gib = |count: u64| count << 30;
        let name = |memory, cores| suggested_model(memory, cores).map(|model| model.name());
        assert_eq!(name(gib(64), 2), Some("Qwen2.5-0.5B-Instruct"));
        assert_eq!(name(gib(64), 16), Some("Qwen3-4B-Instruct-2507"));
        assert_eq!(name(gib(64), 32), Some("Qwen2.5-7B-Instruct"));
        assert_eq!(name(gib(8), 32), Some("Qwen2.5-1.5B-Instruct"));
        assert_eq!(name(gib(1), 1), Some("SmolLM2-360M-Instruct"));
        assert_eq!(name(gib(1) / 2, 1), Some("SmolLM2-135M-Instruct"));
        assert_eq!(name(gib(1) / 4, 64), None);
    }

    #[test]
    fn models_are_listed_by_size() {
        assert!(MODELS.windows(2).all(|pair| pair[0].millions < pair[1].millions));
    }
}
