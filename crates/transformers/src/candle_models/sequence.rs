//! A model with the keys and values of one sequence.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use candle_core::{Result, Tensor};

/// A model that reads one sequence.
pub(crate) trait CandleModel: Send + Sync {
    /// A model of the same weights that has read nothing.
    fn fresh(&self) -> Result<Box<dyn CandleModel>>;

    /// Reads `ids` (1, t) after `past` tokens, and gives the logits of the last position: one number for each entry of the
    /// vocabulary, in any shape. Only a beginning has more than one token.
    fn read(&mut self, ids: &Tensor, past: usize) -> Result<Tensor>;
}

/// The call of a model of candle's.
pub(super) type Read<M> = fn(&mut M, &Tensor, usize) -> Result<Tensor>;

/// A model that is cloned for each sequence. Clones share their weights.
pub(super) struct Cloned<M> {
    pub(super) model: M,
    pub(super) read: Read<M>,
}

impl<M: Clone + Send + Sync + 'static> CandleModel for Cloned<M> {
    fn fresh(&self) -> Result<Box<dyn CandleModel>> {
        Ok(Box::new(Self { model: self.model.clone(), read: self.read }))
    }

    fn read(&mut self, ids: &Tensor, past: usize) -> Result<Tensor> {
        (self.read)(&mut self.model, ids, past)
    }
}

/// Makes a model from weights in memory.
pub(super) type Make<M> = Arc<dyn Fn() -> Result<M> + Send + Sync>;

/// A model that cannot be cloned, and is made from shared weights for each sequence.
pub(super) struct Made<M> {
    pub(super) make: Make<M>,
    pub(super) model: M,
    pub(super) read: Read<M>,
}

impl<M: Send + Sync + 'static> CandleModel for Made<M> {
    fn fresh(&self) -> Result<Box<dyn CandleModel>> {
        Ok(Box::new(Self { make: self.make.clone(), model: (self.make)()?, read: self.read }))
    }

    fn read(&mut self, ids: &Tensor, past: usize) -> Result<Tensor> {
        (self.read)(&mut self.model, ids, past)
    }
}

/// A model that all sequences share because it cannot be cloned. It forgets a sequence when another begins, which then is
/// read again when it goes on.
pub(super) struct Shared<M> {
    /// The model, and the number of the sequence that it read last.
    model: Arc<Mutex<(M, u64)>>,
    read: Read<M>,
    number: u64,
    tokens: Vec<u32>,
}

impl<M> Shared<M> {
    pub(super) fn new(model: M, read: Read<M>) -> Self {
        Self { model: Arc::new(Mutex::new((model, 0))), read, number: 0, tokens: Vec::new() }
    }
}

impl<M: Send + 'static> CandleModel for Shared<M> {
    fn fresh(&self) -> Result<Box<dyn CandleModel>> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Self { model: self.model.clone(), read: self.read, number, tokens: Vec::new() }))
    }

    fn read(&mut self, ids: &Tensor, past: usize) -> Result<Tensor> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let (model, last) = &mut *model;
        if past > 0 && *last != self.number {
            *last = 0;
            let before = Tensor::new(self.tokens.as_slice(), ids.device())?.unsqueeze(0)?;
            (self.read)(model, &before, 0)?;
        }
        *last = 0;
        let logits = (self.read)(model, ids, past)?;
        *last = self.number;
        self.tokens.extend(ids.flatten_all()?.to_vec1::<u32>()?);
        Ok(logits)
    }
}

/// A sequence and the model that has read it. A clone has no model: it is read again when it goes on.
#[derive(Default)]
pub(crate) struct CandleSequence {
    pub(super) tokens: Vec<u32>,
    pub(super) model: Option<Box<dyn CandleModel>>,
}

impl CandleSequence {
    /// The number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }
}

impl Clone for CandleSequence {
    fn clone(&self) -> Self {
        Self { tokens: self.tokens.clone(), model: None }
    }
}

impl fmt::Debug for CandleSequence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CandleSequence").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    /// The sum of all tokens of the sequence, which a beginning sets to 0.
    fn sum(model: &mut u32, ids: &Tensor, past: usize) -> Result<Tensor> {
        if past == 0 {
            *model = 0;
        }
        *model += ids.flatten_all()?.to_vec1::<u32>()?.iter().sum::<u32>();
        Tensor::new(&[*model as f32], ids.device())
    }

    #[test]
    fn sequences_of_one_shared_model_do_not_disturb_each_other() {
        let shared = Shared::new(0u32, sum);
        let (mut first, mut second) = (shared.fresh().unwrap(), shared.fresh().unwrap());
        let read = |model: &mut dyn CandleModel, ids: &[u32], past: usize| -> f32 {
            let ids = Tensor::new(ids, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
            model.read(&ids, past).unwrap().to_vec1::<f32>().unwrap()[0]
        };
        assert_eq!(read(&mut *first, &[1, 2], 0), 3.0);
        assert_eq!(read(&mut *second, &[10], 0), 10.0);
        assert_eq!(read(&mut *first, &[4], 2), 7.0);
        assert_eq!(read(&mut *first, &[8], 3), 15.0);
        assert_eq!(read(&mut *second, &[20], 1), 30.0);
    }
}
