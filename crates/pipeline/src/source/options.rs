//! `[source]` and `[pages]` of a config.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_documents::{Columns, OneOrMore};
use sporran_kilt::{
    PassageSplit,
    formats::Collection,
    passage::{Unit, WORDS, Windows},
    store::shown_path,
};

use super::collection;

/// The name of files with globs of files that are not read.
const IGNORE_FILE: &str = ".sporranignore";
/// The passages of `split = "sentences"` and `split = "tokens"` without `size`.
const SENTENCES: u32 = 5;
const TOKENS: u32 = 256;

/// `[source]`: the pages, and their splitting into passages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceOptions {
    /// The knowledge source: a file, a folder with its subfolders, or a list of both.
    ///
    /// A file of JSON lines in KILT's layout is read as it is. Plain text, Markdown, HTML, PDF, docx, odt, epub, tables (CSV,
    /// TSV, Parquet) and other JSON lines become pages: a page for each document, for each row and for each object. Text
    /// files can be plain, gzip or zstd.
    pub path: OneOrMore<PathBuf>,
    /// The format of another collection of documents, which is read without a conversion: `beir`, `anserini`, `msmarco`,
    /// `psgs-tsv` or `passages`. `path` can then be its folder. Each document is a page. The default is KILT's layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Collection>,
    /// Globs of the files of folders to read, in the syntax of `.gitignore`, such as `*.md`. Without any, all are read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Globs of the files and folders that are not read, in the syntax of `.gitignore`, such as `drafts/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// The name of files in the folders of the source that list further globs of files that are not read.
    #[serde(default = "ignore_file", skip_serializing_if = "is_ignore_file")]
    pub ignore_file: String,
    /// `[source.columns]`: the columns of tables, and the fields of JSON lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Columns>,
    /// Whether a file that cannot be read is an error. Otherwise the other files are read and the summary lists it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// The file of redirects, with lines of `title TAB target title`.
    pub redirects: Option<PathBuf>,
    /// The unit of passages: `words` (100 words, as in KILT's published passages), `paragraph`, `section`, `page` (the whole
    /// document), `sentences` or `tokens`.
    #[serde(default)]
    pub split: SplitBy,
    /// The number of words, sentences or tokens of a passage. The defaults are 100 words, 5 sentences and 256 tokens. With
    /// `size` or `overlap`, a passage of words does not cross a heading and includes list items.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// The number of words, sentences or tokens that a passage shares with the one before it. The default is 0.
    #[schemars(range(min = 0, max = 999_999))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<u32>,
    /// The model's folder with the tokenizer for `split = "tokens"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// The folder of the passage store and the indexes. Each is built once for its content and options.
    #[serde(default = "indexes")]
    pub indexes: PathBuf,
    /// The paths as a user wrote them, in the order of `path`, if `path` has other names of the same files. Places in files
    /// have them.
    #[serde(skip)]
    pub shown: Vec<PathBuf>,
}

/// `source.split`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SplitBy {
    /// 100 white-space words, as in KILT's published passages, or `size` words of a section.
    #[default]
    Words,
    /// Every paragraph and list item alone, with the headings directly above it.
    Paragraph,
    /// All text under one heading.
    Section,
    /// The whole page or document.
    Page,
    /// Sentences of a section.
    Sentences,
    /// Tokens of a model, of a section.
    Tokens,
}

fn indexes() -> PathBuf {
    "indexes".into()
}

fn ignore_file() -> String {
    IGNORE_FILE.to_owned()
}

fn is_ignore_file(name: &str) -> bool {
    name == IGNORE_FILE
}

impl SourceOptions {
    /// The options of a source with default values.
    pub fn new(path: impl Into<OneOrMore<PathBuf>>) -> Self {
        Self {
            path: path.into(),
            format: None,
            include: Vec::new(),
            exclude: Vec::new(),
            ignore_file: ignore_file(),
            columns: None,
            strict: false,
            redirects: None,
            split: SplitBy::default(),
            size: None,
            overlap: None,
            tokenizer: None,
            indexes: indexes(),
            shown: Vec::new(),
        }
    }

    /// The paths in a store, each with the path to show.
    pub(crate) fn names(&self) -> Vec<(String, String)> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        self.path.all().iter().map(text).zip(self.shown.iter().map(text)).collect()
    }

    /// A file or folder of the source as the user names it.
    pub(crate) fn named(&self, file: &str) -> String {
        shown_path(file, &self.names()).unwrap_or_else(|| file.to_owned())
    }

    /// How pages are split.
    pub fn splitting(&self) -> PassageSplit {
        let windows = |unit, size| {
            let (size, overlap) = (self.size.unwrap_or(size), self.overlap.unwrap_or(0));
            PassageSplit::Windows(Windows { unit, size, overlap })
        };
        match self.split {
            SplitBy::Words if self.size.is_none() && self.overlap.is_none() => PassageSplit::Words,
            SplitBy::Words => windows(Unit::Words, WORDS as u32),
            SplitBy::Paragraph => PassageSplit::Paragraph,
            SplitBy::Section => PassageSplit::Section,
            SplitBy::Page => PassageSplit::Page,
            SplitBy::Sentences => windows(Unit::Sentences, SENTENCES),
            SplitBy::Tokens => windows(Unit::Tokens, TOKENS),
        }
    }

    /// The first path, which messages name.
    pub fn first_path(&self) -> &Path {
        self.path.all().first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// The same source with the paths that the user wrote, for a config.
    pub(crate) fn into_written(self) -> Self {
        if self.shown.is_empty() {
            return self;
        }
        Self { path: self.shown.into(), shown: Vec::new(), ..self }
    }

    /// The options of the documents' readers.
    pub(crate) fn documents(&self) -> sporran_documents::Options {
        sporran_documents::Options {
            paths: self.path.all().to_vec(),
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            ignore_file: self.ignore_file.clone(),
            columns: self.columns.clone(),
            skip: vec![self.indexes.clone()],
        }
    }

    /// Reports missing files, wrong globs and impossible sizes.
    pub(crate) fn check(&self, document: &mut Document<'_>) {
        match self.format {
            Some(collection) => collection::check(self, collection, document),
            None => {
                for path in self.path.all().iter().filter(|path| !path.exists()) {
                    document.report_key("source.path", format!("no file or folder {}", path.display()));
                }
            }
        }
        if let Some(path) = self.redirects.as_ref().filter(|path| !path.is_file()) {
            document.report_key("source.redirects", format!("no file {}", path.display()));
        }
        for (key, message) in sporran_documents::wrong_globs(&self.documents()) {
            document.report_key(&format!("source.{key}"), message);
        }
        let has_units = matches!(self.split, SplitBy::Words | SplitBy::Sentences | SplitBy::Tokens);
        for (key, is_set) in [("size", self.size.is_some()), ("overlap", self.overlap.is_some())] {
            if is_set && !has_units {
                let message = "has no effect; `split` is not `words`, `sentences` or `tokens`";
                document.report_key(&format!("source.{key}"), message.to_owned());
            }
        }
        if let PassageSplit::Windows(Windows { size, overlap, .. }) = self.splitting()
            && overlap >= size
        {
            let message = format!("expected less than the {size} of `size`, found {overlap}");
            document.report_key("source.overlap", message);
        }
        match (&self.tokenizer, self.split) {
            (None, SplitBy::Tokens) => {
                let message = "is missing; `split = \"tokens\"` needs the folder of a model";
                document.report_key("source.tokenizer", message.to_owned());
            }
            (Some(folder), SplitBy::Tokens) if !folder.is_dir() => {
                document.report_key("source.tokenizer", format!("no folder {}", folder.display()));
            }
            (Some(_), split) if split != SplitBy::Tokens => {
                let message = "has no effect; `split` is not `tokens`";
                document.report_key("source.tokenizer", message.to_owned());
            }
            _ => {}
        }
        let there = self.indexes.ancestors().find(|path| path.exists());
        if let Some(file) = there.filter(|path| !path.is_dir()) {
            let message = format!("expected a folder, found the file {}", file.display());
            document.report_key("source.indexes", message);
        }
    }
}

/// `[pages]`: the pages of the source to search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PagesOptions {
    /// A file with a page's id or title in each line.
    pub file: PathBuf,
    /// Whether to exclude the listed pages, instead of the others.
    #[serde(default)]
    pub exclude: bool,
}

#[cfg(test)]
mod tests {
    use sporran_config::Text;

    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let text = Text::new(Path::new("c.toml"), text.to_owned(), &[]);
        let mut document = sporran_config::Document::parse(&text);
        let options: Option<SourceOptions> = document.read_root(&[]);
        if let Some(options) = &options {
            options.check(&mut document);
        }
        document.into_diagnostics().iter().map(|found| format!("{}: {}", found.key, found.message)).collect()
    }

    #[test]
    fn the_form_of_earlier_configs_stays() {
        let options: SourceOptions = toml::from_str("path = 'a.jsonl'\nsplit = 'section'").unwrap();
        let written = serde_json::to_string(&options).unwrap();
        assert_eq!(written, r#"{"path":"a.jsonl","redirects":null,"split":"section","indexes":"indexes"}"#);
        assert_eq!(options.splitting(), PassageSplit::Section);
        let options: SourceOptions =
            toml::from_str("path = ['a', 'b.pdf']\nsplit = 'sentences'\noverlap = 2\ncolumns.text = 'Body'")
                .unwrap();
        assert_eq!(
            serde_json::from_str::<SourceOptions>(&serde_json::to_string(&options).unwrap()).unwrap(),
            options
        );
        let windows = Windows { unit: Unit::Sentences, size: 5, overlap: 2 };
        assert_eq!(options.splitting(), PassageSplit::Windows(windows));
    }

    #[test]
    fn impossible_options_are_reported() {
        let cases = [
            ("path = 'nowhere'", "source.path: no file or folder nowhere"),
            ("path = []", "path: expected at least one string, found a list of 0"),
            ("path = '.'\nsize = 3\nsplit = 'page'", "source.size: has no effect"),
            (
                "path = '.'\nsplit = 'sentences'\noverlap = 5",
                "source.overlap: expected less than the 5 of `size`, found 5",
            ),
            ("path = '.'\nsplit = 'tokens'", "source.tokenizer: is missing"),
            ("path = '.'\ntokenizer = '.'", "source.tokenizer: has no effect"),
            ("path = '.'\ninclude = ['a{']", "source.include: expected a glob, found `a{`"),
        ];
        for (text, expected) in cases {
            let found = mistakes(text);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
        }
        assert!(mistakes("path = ['.', 'src']\nsplit = 'sentences'\nsize = 3\noverlap = 1").is_empty());
    }
}
