//! The prompts of language models that rerank.

use std::{path::Path, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{ChatMessage, ChatTemplate, Tokenizer};
use sporran_kilt::Template;

use crate::{Error, Result};

/// The prompt around a query and a passage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LlmFormat {
    /// The folder's chat template where it has the roles `query` and `document`, else that of Qwen 3's rerankers.
    #[default]
    Folder,
    /// That of Qwen 3's rerankers.
    Qwen3,
    /// That of the second version of mxbai-rerank, whose answers are `1` and `0`.
    Mxbai,
}

impl FromStr for LlmFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "folder" => Ok(Self::Folder),
            "qwen3" => Ok(Self::Qwen3),
            "mxbai" => Ok(Self::Mxbai),
            _ => Err(format!("expected `folder`, `qwen3` or `mxbai`, found `{text}`")),
        }
    }
}

impl LlmFormat {
    /// The answers for and against a passage.
    pub(super) fn answers(self) -> [&'static str; 2] {
        match self {
            Self::Folder | Self::Qwen3 => ["yes", "no"],
            Self::Mxbai => ["1", "0"],
        }
    }

    /// The parts of the prompt, each of which is tokenised by itself.
    fn parts(self, has_instruction: bool) -> Vec<String> {
        let parts: &[&str] = match (self, has_instruction) {
            (Self::Folder | Self::Qwen3, _) => &[QWEN_BEFORE, QWEN_PAIR, QWEN_AFTER],
            (Self::Mxbai, true) => &MXBAI,
            (Self::Mxbai, false) => &[&[MXBAI[0], "query: {query}"], &MXBAI[2..]].concat(),
        };
        parts.iter().map(|part| (*part).to_owned()).collect()
    }
}

/// The format of Qwen 3's rerankers, from their model card.
const QWEN_BEFORE: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the \
                           Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n\
                           <|im_start|>user\n";
const QWEN_PAIR: &str = "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {passage}";
const QWEN_AFTER: &str = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
const INSTRUCTION: &str = "Given a web search query, retrieve relevant passages that answer the query";

/// The format of mxbai-rerank-v2, whose models were trained with it.
const MXBAI: [&str; 7] = [
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
    "instruction: {instruction}\nquery: {query}",
    "\n",
    "document: {passage}",
    "\n",
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document pair, \
     carefully analyze the semantic relationship between them, then provide your binary relevance judgment (0 for not relevant, \
     1 for relevant).\nRelevance:",
    "<|im_end|>\n<|im_start|>assistant\n",
];

/// The tokens that both formats have.
const MARKS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];
/// The fields of a part, in the order in which they are filled in.
const FIELDS: [&str; 3] = ["instruction", "query", "passage"];

/// A part of a prompt.
enum Part {
    /// One without fields, which is never cut.
    Fixed(Vec<u32>),
    Filled {
        template: Template,
        has_passage: bool,
    },
}

/// How a query and a passage become a prompt.
enum Form {
    /// Parts, of which each is tokenised by itself.
    Parts { parts: Vec<Part>, instruction: String },
    /// The folder's chat template with the roles of a pair, after a turn of the system with the instruction, and what it writes
    /// after a passage.
    Template { template: Box<ChatTemplate>, instruction: Option<String>, after: Vec<u32> },
}

/// The prompts of a model, as token rows.
pub(super) struct Prompt {
    tokenizer: Tokenizer,
    form: Form,
    pub(super) most: usize,
}

/// Checks the parts of a prompt that an option gives.
///
/// # Errors
/// [`Error::Option`] for other fields, and for other than one part with a query and one with a passage.
pub(super) fn check_parts(parts: &[String]) -> Result<()> {
    let expected = "texts with the fields `{instruction}`, `{query}` and `{passage}`, and one text each with a query and a passage";
    let wrong = |found: String| Error::Option { option: "prompt", expected, found };
    let mut counts = [0; FIELDS.len()];
    for part in parts {
        let template = Template::parse_any(part, &FIELDS).ok_or_else(|| wrong(format!("`{part}`")))?;
        counts.iter_mut().enumerate().for_each(|(field, count)| *count += usize::from(template.has(field)));
    }
    if counts[1..].iter().any(|count| *count != 1) {
        return Err(wrong(format!("{} with a query and {} with a passage", counts[1], counts[2])));
    }
    Ok(())
}

impl Prompt {
    /// The prompts of the model in `folder`, of at most `most` tokens; `own` are the parts of a format of its own.
    ///
    /// # Errors
    /// Errors of the folder's files; [`Error::Option`] where `most` leaves no room, and for a folder whose vocabulary does not
    /// have the tokens of the format.
    pub(super) fn open(
        folder: &Path,
        tokenizer: Tokenizer,
        instruction: Option<String>,
        most: usize,
        (format, own): (LlmFormat, Option<&[String]>),
    ) -> Result<Self> {
        let template = match (format, own) {
            (LlmFormat::Folder, None) => ChatTemplate::open(folder)?.filter(has_pair_roles),
            _ => None,
        };
        let form = match template {
            Some(template) => {
                let after = tokenizer.encode_plain(&ending(&template, instruction.as_deref())?)?;
                Form::Template { template: Box::new(template), instruction, after }
            }
            None => Form::of_parts(&tokenizer, instruction, format, own)?,
        };
        let fixed = match &form {
            Form::Template { after, .. } => after.len(),
            Form::Parts { parts, .. } => parts.iter().map(Part::fixed).sum(),
        };
        if most <= fixed {
            let expected = "more tokens than the prompt has around a query and a passage";
            return Err(Error::Option {
                option: "max-tokens",
                expected,
                found: format!("{most}, of {fixed}"),
            });
        }
        Ok(Self { tokenizer, form, most })
    }

    /// The token row of each pair of query and passage.
    ///
    /// # Errors
    /// Errors of the tokenizer and the chat template.
    pub(super) fn rows(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<u32>>> {
        pairs.iter().map(|(query, passage)| self.row(query, passage)).collect()
    }

    fn row(&self, query: &str, passage: &str) -> Result<Vec<u32>> {
        match &self.form {
            Form::Parts { parts, instruction } => {
                let row = |part: &Part| match part {
                    Part::Fixed(ids) => Ok(ids.clone()),
                    Part::Filled { template, .. } => {
                        self.tokenizer.encode_plain(&template.fill(&[instruction, query, passage]))
                    }
                };
                let mut rows = parts.iter().map(row).collect::<Result<Vec<_>, _>>()?;
                // What is too much is cut from the passage, and then from what has none.
                let mut surplus = rows.iter().map(Vec::len).sum::<usize>().saturating_sub(self.most);
                for with_passage in [true, false] {
                    for (part, row) in parts.iter().zip(&mut rows).rev() {
                        if matches!(part, Part::Filled { has_passage, .. } if *has_passage == with_passage) {
                            let cut = surplus.min(row.len());
                            row.truncate(row.len() - cut);
                            surplus -= cut;
                        }
                    }
                }
                Ok(rows.concat())
            }
            Form::Template { template, instruction, after } => {
                let text = template.render(&turns(instruction.as_deref(), query, passage), true)?;
                let mut row = self.tokenizer.encode_plain(&text)?;
                if row.len() > self.most {
                    row.truncate(self.most - after.len());
                    row.extend(after);
                }
                Ok(row)
            }
        }
    }
}

impl Part {
    /// The tokens that are there whatever the query and the passage are.
    fn fixed(&self) -> usize {
        match self {
            Self::Fixed(ids) => ids.len(),
            Self::Filled { .. } => 0,
        }
    }
}

impl Form {
    /// The parts of a format, or those of an option. A part with an instruction is left out where there is none.
    fn of_parts(
        tokenizer: &Tokenizer,
        instruction: Option<String>,
        format: LlmFormat,
        own: Option<&[String]>,
    ) -> Result<Self> {
        let missing = MARKS.into_iter().find(|mark| tokenizer.token_id(mark).is_none());
        if let Some(mark) = missing.filter(|_| own.is_none()) {
            return Err(Error::Option {
                option: "model",
                expected: "a chat template with the roles `query` and `document`, a vocabulary with the tokens of Qwen's chats, \
                           or the option `prompt`",
                found: format!("no token `{mark}`"),
            });
        }
        let default = || match format {
            LlmFormat::Folder | LlmFormat::Qwen3 if own.is_none() => Some(INSTRUCTION.to_owned()),
            _ => None,
        };
        let instruction = instruction.or_else(default);
        let texts = own.map_or_else(|| format.parts(instruction.is_some()), <[String]>::to_vec);
        check_parts(&texts)?;
        let mut parts = Vec::with_capacity(texts.len());
        for template in texts.iter().filter_map(|text| Template::parse_any(text, &FIELDS)) {
            if template.has(0) && instruction.is_none() {
                continue;
            }
            parts.push(if (0..FIELDS.len()).any(|field| template.has(field)) {
                Part::Filled { has_passage: template.has(2), template }
            } else {
                Part::Fixed(tokenizer.encode_plain(&template.fill(&[]))?)
            });
        }
        Ok(Self::Parts { parts, instruction: instruction.unwrap_or_default() })
    }
}

/// The turns of a pair.
fn turns(instruction: Option<&str>, query: &str, passage: &str) -> Vec<ChatMessage> {
    let system = instruction.map(|instruction| ChatMessage::new("system", instruction));
    let pair = [ChatMessage::new("query", query), ChatMessage::new("document", passage)];
    system.into_iter().chain(pair).collect()
}

/// Whether a template writes the turns of a pair.
fn has_pair_roles(template: &ChatTemplate) -> bool {
    const PROBES: [&str; 2] = ["query-probe", "document-probe"];
    let rendered = template.render(&turns(None, PROBES[0], PROBES[1]), true);
    rendered.is_ok_and(|text| PROBES.iter().all(|probe| text.contains(probe)))
}

/// What a template writes after a passage.
fn ending(template: &ChatTemplate, instruction: Option<&str>) -> Result<String> {
    const PROBE: &str = "document-probe";
    let text = template.render(&turns(instruction, "", PROBE), true)?;
    Ok(text.rsplit_once(PROBE).map_or_else(String::new, |(_, after)| after.to_owned()))
}
