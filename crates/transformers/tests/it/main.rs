//! Integration tests of this crate, in one program so that it is linked once.

mod candle_models;
mod causal;
mod checkpoint;
mod common;
mod decoder_kinds;
mod decoders;
mod decoding;
mod device;
mod encoder_parity;
mod fid;
mod gradient;
mod parity;
mod parlai;
mod precision;
mod released;
mod running;
mod stored_types;
mod weight_files;
