//! Integration tests of this crate, in one program so that it is linked once.

#[expect(unreachable_pub, reason = "it is the example of a public module in CONTRIBUTING.md")]
mod first_sentence;
mod new_kind;
mod nsmn;
mod passages;
mod remote;
mod running_batch;
mod seq2seq;
mod sink;
