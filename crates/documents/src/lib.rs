//! Files of documents and tables as pages of a knowledge source.
//!
//! [`list`] finds the files of a source. [`Collection`] reads them into one file of [`Page`](sporran_kilt::Page)s, of
//! which each paragraph keeps its line or its page in the file. A later collection of the same source reads only the
//! files that have changed. Files that cannot be read are [`Problem`]s of the [`Summary`]; the others are read.

pub mod child;
mod collection;
mod columnar;
mod document;
mod encoding;
mod error;
mod flow;
mod format;
mod html;
mod json_lines;
mod lines;
mod listing;
mod markdown;
mod options;
mod pdf;
mod read;
mod record;
mod summary;
mod table;
mod text;
mod written;
mod zipped;

pub use collection::{Collection, Progress};
pub use document::{Block, Document};
pub use error::{Error, Result};
pub use format::Format;
pub use lines::is_wrapped;
pub use listing::{Listing, SourceFile, is_single_source, list, wrong_globs};
pub use options::{Columns, OneOrMore, Options};
pub use summary::{Problem, Severity, Summary};
