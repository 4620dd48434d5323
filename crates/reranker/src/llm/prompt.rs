//! The prompts of language models that rerank.

use std::path::Path;

use sporran_checkpoint::{ChatMessage, ChatTemplate, Tokenizer};

use crate::{Error, Result};

/// The format of Qwen 3's rerankers, from their model card.
const BEFORE: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct \
                      provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
const AFTER: &str = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
const INSTRUCTION: &str = "Given a web search query, retrieve relevant passages that answer the query";
/// The tokens that the format has.
const MARKS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// How a query and a passage become a prompt.
enum Form {
    /// The format of Qwen 3's rerankers, with its instruction.
    Qwen { before: Vec<u32>, instruction: String },
    /// The folder's chat template with the roles of a pair, after a turn of the system with the instruction.
    Template { template: ChatTemplate, instruction: Option<String> },
}

/// The prompts of a model, as token rows.
pub(super) struct Prompt {
    tokenizer: Tokenizer,
    form: Form,
    /// What follows a passage, which is never cut.
    after: Vec<u32>,
    most: usize,
}

impl Prompt {
    /// The prompts of the model in `folder`, of at most `most` tokens.
    ///
    /// # Errors
    /// Errors of the folder's files; [`Error::Option`] where `most` leaves no room, and for a folder whose vocabulary does not
    /// have Qwen's format and whose chat template does not have the roles of a pair.
    pub(super) fn open(
        folder: &Path,
        tokenizer: Tokenizer,
        instruction: Option<String>,
        most: usize,
    ) -> Result<Self> {
        let template = ChatTemplate::open(folder)?;
        let (form, after) = match template.filter(has_pair_roles) {
            Some(template) => {
                let after = ending(&template, instruction.as_deref())?;
                (Form::Template { template, instruction }, after)
            }
            None => {
                if let Some(mark) = MARKS.into_iter().find(|mark| tokenizer.token_id(mark).is_none()) {
                    return Err(Error::Option {
                        option: "model",
                        expected: "a chat template with the roles `query` and `document`, or a vocabulary with the tokens of \
                                   Qwen's chats",
                        found: format!("no token `{mark}`"),
                    });
                }
                let instruction = instruction.unwrap_or_else(|| INSTRUCTION.into());
                (Form::Qwen { before: tokenizer.encode_plain(BEFORE)?, instruction }, AFTER.to_owned())
            }
        };
        let after = tokenizer.encode_plain(&after)?;
        let fixed = after.len() + if let Form::Qwen { before, .. } = &form { before.len() } else { 0 };
        if most <= fixed {
            let expected = "more tokens than the prompt has around a query and a passage";
            return Err(Error::Option {
                option: "max-tokens",
                expected,
                found: format!("{most}, of {fixed}"),
            });
        }
        Ok(Self { tokenizer, form, after, most })
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
            Form::Qwen { before, instruction } => {
                let text = format!("<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {passage}");
                let mut middle = self.tokenizer.encode_plain(&text)?;
                middle.truncate(self.most - before.len() - self.after.len());
                Ok([before.as_slice(), &middle, &self.after].concat())
            }
            Form::Template { template, instruction } => {
                let text = template.render(&turns(instruction.as_deref(), query, passage), true)?;
                let mut row = self.tokenizer.encode_plain(&text)?;
                if row.len() > self.most {
                    row.truncate(self.most - self.after.len());
                    row.extend(&self.after);
                }
                Ok(row)
            }
        }
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
