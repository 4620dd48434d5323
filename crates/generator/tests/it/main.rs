//! Integration tests of this crate, in one program so that it is linked once.

mod first_sentence;
mod new_kind;
mod nsmn;
mod passages;
mod seq2seq;
